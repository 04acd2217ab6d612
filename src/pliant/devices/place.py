"""Where ledgers, turns and simulated cards lie: in memory, in a folder that belongs to one state folder."""

import hashlib
import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

OF = "state"  # in the folder itself: whose it is, so that somebody can tell when that is gone
NOTE = "gpu-place"  # in the state folder: where it is, so that a server started elsewhere finds what lives


class Place:
    """`<runtime folder>/pliant-<hash>/` with `ledgers/`, `turns/` and `cards/`; made when first needed."""

    def __init__(self, state: Path, environ: Mapping[str, str] = os.environ) -> None:
        self._state, self._note = state.resolve(), state / NOTE
        self._name = f"pliant-{hashlib.sha256(os.fsencode(state.resolve())).hexdigest()[:16]}"
        self._fallback = state / "gpu"
        self._environ = environ
        self._known: Path | None = None  # it was looked at, and is ours

    @property
    def root(self) -> Path:
        """The folder, made if need be. Raises OSError: what is wrong with it."""
        if self._known is not None and self._known.is_dir():
            return self._known
        root = self.chosen
        root.mkdir(mode=0o700, exist_ok=True, parents=True)
        seen = root.lstat()
        if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid() or seen.st_mode & 0o077:
            raise PermissionError(f"{root} belongs to somebody else or is open to others: remove it")
        if self._noted() != root:
            self._note.write_text(f"{root}\n")
            (root / OF).write_text(f"{self._state}\n")
        self._known = root
        return root

    @property
    def chosen(self) -> Path:
        """Where it is, or would be."""
        return self._noted() or self._chosen() / self._name

    def folder(self, kind: str) -> Path:
        folder = self.root / kind
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def present(self, kind: str) -> list[Path]:
        """What is there of a kind, without making anything."""
        root = self._noted()
        try:
            return sorted((root / kind).iterdir()) if root is not None else []
        except OSError:
            return []

    def tidy(self) -> None:
        """Removes what servers left here that were killed and whose state folders are gone by now."""
        for other in self.chosen.parent.glob("pliant-*"):
            try:
                whose = Path((other / OF).read_text().rstrip("\n"))
            except (OSError, ValueError):
                continue  # none of these, or somebody else's
            if other.lstat().st_uid == os.geteuid() and not whose.exists():
                shutil.rmtree(other, ignore_errors=True)

    def remove(self) -> None:
        """Nothing of the state folder lives any more."""
        if (root := self._noted()) is not None:
            shutil.rmtree(root, ignore_errors=True)
            self._note.unlink(missing_ok=True)
        self._known = None

    def _noted(self) -> Path | None:
        try:
            root = Path(self._note.read_text().strip())
        except (OSError, ValueError):
            return None
        return root if root.name == self._name else None  # a copied state folder has its own

    def _chosen(self) -> Path:
        for folder in (self._environ.get("XDG_RUNTIME_DIR") or "", "/dev/shm"):
            path = Path(folder)
            if folder and not set(folder) & set(" \t:") and path.is_absolute() and os.access(path, os.W_OK):
                return path
        return self._fallback

"""The folder in memory, one per state folder, that holds ledgers, turns and simulated cards."""

import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from threading import Lock

OF = "state"  # file in the folder: path of its state folder, so that `tidy` sees when that is gone
NOTE = "gpu-place"  # file in the state folder: path of this folder, so that any later server finds it

NAMES = 2  # number of names that are tried before the state folder is used


class Place:
    """`<runtime folder>/pliant-<uid>-<random>/` with `ledgers/`, `turns/` and `cards/`; made when needed.

    Every account may write to `/dev/shm`: a folder found there is used only if this account made it for this
    state folder.
    """

    def __init__(self, state: Path, environ: Mapping[str, str] = os.environ) -> None:
        self._state, self._note = state.resolve(), state / NOTE
        self._fallback = state / "gpu"
        self._environ = environ
        self._making = Lock()
        self._known: Path | None = None  # checked, and ours

    @property
    def root(self) -> Path:
        """The folder, created if missing. Raises OSError with what is wrong with it."""
        with self._making:
            if self._known is None or not self._known.is_dir():
                root = self._noted() or self._made()
                if root.lstat().st_mode & 0o077:
                    raise PermissionError(f"{root} is open to others: chmod 700 {root}")
                self._known = root
            return self._known

    @property
    def chosen(self) -> Path:
        """The folder if it exists, else the one in which it would be created."""
        return self._noted() or self._chosen()

    def _made(self) -> Path:
        folder = self._chosen()
        for _ in range(NAMES if folder != self._fallback else 0):
            root = folder / f"pliant-{os.geteuid()}-{secrets.token_hex(8)}"
            with contextlib.suppress(FileExistsError):
                root.mkdir(mode=0o700)
                break
        else:
            root = self._fallback
            root.mkdir(mode=0o700, exist_ok=True)
        (root / OF).write_text(f"{self._state}\n")
        self._note.write_text(f"{root}\n")
        return root

    def folder(self, kind: str) -> Path:
        folder = self.root / kind
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def present(self, kind: str) -> list[Path]:
        """The existing files of a kind; creates nothing."""
        root = self._noted()
        try:
            return sorted((root / kind).iterdir()) if root is not None else []
        except OSError:
            return []

    def tidy(self) -> None:
        """Removes the folders that killed servers left and whose state folders are gone."""
        noted = self._noted()
        for other in (noted.parent if noted is not None else self._chosen()).glob("pliant-*"):
            try:
                if other.lstat().st_uid != os.geteuid():
                    continue  # another account's file may be a FIFO, which would block
                whose = Path((other / OF).read_text().rstrip("\n"))
            except (OSError, ValueError):
                continue
            if not whose.exists():
                shutil.rmtree(other, ignore_errors=True)

    def remove(self) -> None:
        """Removes the folder: nothing of the state folder lives any more."""
        if (root := self._noted()) is not None:
            shutil.rmtree(root, ignore_errors=True)
            self._note.unlink(missing_ok=True)
        self._known = None

    def _noted(self) -> Path | None:
        """The folder that was made for this state folder; None if there is none."""
        try:
            root = Path(self._note.read_text().strip())
            seen = root.lstat()
            ours = stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.geteuid()
            if not ours or (root / OF).read_text().rstrip("\n") != str(self._state):
                return None  # another account's, or that of the state folder that ours is a copy of
        except (OSError, ValueError):
            return None
        return root

    def _chosen(self) -> Path:
        runtime = Path(self._environ.get("XDG_RUNTIME_DIR") or "-")
        for path in (runtime, Path("/dev/shm")):  # a folder of its own is made in it, mode 0700  # nosec B108
            if path.is_absolute() and not set(str(path)) & set(" \t:") and os.access(path, os.W_OK):
                seen = path.stat()
                if path != runtime or (seen.st_uid == os.geteuid() and not seen.st_mode & 0o077):
                    return path
        return self._fallback

"""Data of a task on this machine: the machine's files as they are, links to them, clones of repositories.

A task sees the files of the machine, so a folder can appear under another path only as a link below the job
folder. A shell prepares the data and then becomes the task: it has the account, the limits and the log of the
task, and its failure is the task's failure.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from shlex import quote

from pliant.control.errors import BadRequest
from pliant.model.volume import GIT, HOST_PATH, NFS, Volume, login_variables

MOUNTS = Path("/proc/self/mounts")

_LOGIN = 'credential.helper=!f() { echo username="$%s"; echo password="$%s"; }; f'

_CLONE = """\
if [ ! -e {target} ]; then
  mkdir -p {above} && new=$(mktemp -d {above}/.clone.XXXXXX) || exit 73
  GIT_TERMINAL_PROMPT=0 git {login}clone --quiet {branch}-- {source} "$new/it" ||
    {{ rm -rf "$new"; {failed}; }}
  {checkout}mv -T "$new/it" {target} 2>/dev/null || [ -e {target} ] || {{ rm -rf "$new"; {failed}; }}
  rm -rf "$new"
fi
"""
_CHECKOUT = 'git -C "$new/it" checkout --quiet --detach {revision} || {{ rm -rf "$new"; {failed}; }}\n  '

_LINK = """\
[ -e {source} ] || {{ {failed}; }}
"""
_LINKED = "mkdir -p {above} && ln -sfnT {source} {target} || {{ {failed}; }}\n"


def refusal(volumes: Iterable[Volume], here: bool, mounts: Path = MOUNTS) -> BadRequest | None:
    """Why a task can never have these volumes here; None: it can. `here`: tasks run as this account."""
    for volume in volumes:
        field = f"spec.storage.{volume.kind}"
        source = volume.source
        if volume.kind == NFS:
            found = _mounted(volume, mounts)
            if found is None:
                what = quote(f"{volume.server}:{volume.source}")
                return BadRequest(
                    f"{what} is not mounted on this machine.",
                    f"Have it mounted, once for all jobs: sudo mount -t nfs {what} /mnt/data",
                    field=field,
                )
            source = found
        if volume.kind == HOST_PATH and not source.startswith("/"):
            return BadRequest(
                f"{source[:100]!r} is not an absolute path.", "Begin it with a slash.", field=f"{field}.path"
            )
        if volume.kind == HOST_PATH and here and not os.path.exists(source):
            return BadRequest(
                f"There is no {source} on this machine, or its account may not see it.",
                f"See it with: ls -ld {quote(source)}",
                field=f"{field}.path",
            )
        target = volume.target
        if ".." in Path(target).parts or (target.startswith("/") and target != source):
            where = "mountPath" if volume.kind != GIT else "path"
            also = f", or {source} itself" if volume.kind != GIT else ""
            return BadRequest(
                f"{target[:100]!r} cannot be made on this machine: its jobs see the machine's own files.",
                f"Use a {where} without a leading slash: a path in the job's folder{also}.",
                field=f"{field}.{where}",
            )
    return None


def notice(volumes: Iterable[Volume]) -> str | None:
    """What its owner should know; None: nothing."""
    paths = [volume.source for volume in volumes if volume.read_only]
    if not paths:
        return None
    return f"readOnly has no effect on this machine: the job has its account's rights in {', '.join(paths)}."


def prepared(argv: Sequence[str], volumes: Sequence[Volume], job: Path, mounts: Path = MOUNTS) -> list[str]:
    """The command line that prepares the volumes and then becomes `argv`."""
    if not volumes:
        return [*argv]
    script = "".join(_script(place, volume, job, mounts) for place, volume in enumerate(volumes))
    secret = [name for place, it in enumerate(volumes) if it.login for name in login_variables(place)]
    forget = f"unset {' '.join(secret)}\n" if secret else ""
    return ["/bin/sh", "-c", f'{script}{forget}exec "$@"', "pliant-volumes", *argv]


def _script(place: int, volume: Volume, job: Path, mounts: Path) -> str:
    if volume.kind == GIT:
        return _cloned(place, volume, job)
    source = volume.source if volume.kind == HOST_PATH else _mounted(volume, mounts)
    what = volume.source if volume.kind == HOST_PATH else f"{volume.server}:{volume.source}"
    failed = _failed(f"{what} cannot be reached on this machine")
    made = _LINK.format(source=quote(source or "/nonexistent"), failed=failed)
    if source is not None and volume.target not in ("", source):
        target = job / volume.target
        above = quote(str(target.parent))
        made += _LINKED.format(above=above, source=quote(source), target=quote(str(target)), failed=failed)
    return made


def _cloned(place: int, volume: Volume, job: Path) -> str:
    name = volume.source.rstrip("/").rpartition("/")[2].rpartition(":")[2].removesuffix(".git")
    target = job / (volume.target or name or "repository")
    failed = _failed(f"the repository {volume.source} cannot be cloned")
    revision = quote(volume.revision)
    return _CLONE.format(
        target=quote(str(target)),
        above=quote(str(target.parent)),
        login=f"-c {quote(_LOGIN % login_variables(place))} " if volume.login else "",
        branch=f"--branch {quote(volume.branch)} " if volume.branch else "",
        source=quote(volume.source),
        checkout=_CHECKOUT.format(revision=revision, failed=failed) if volume.revision else "",
        failed=failed,
    )


def _failed(words: str) -> str:
    return f"echo {quote(f'pliant: {words}')} >&2; exit 66"


def _mounted(volume: Volume, mounts: Path) -> str | None:
    """The local path of that folder of the NFS server, by the deepest mount that has it; None if none has."""
    wanted = os.path.normpath(volume.source)
    best: tuple[int, str] | None = None
    for line in mounts.read_text("utf-8", "surrogateescape").splitlines():
        device, place, kind = (word.encode().decode("unicode_escape") for word in line.split(" ")[:3])
        server, colon, path = device.partition(":")
        if not kind.startswith("nfs") or not colon or server != volume.server:
            continue
        path = os.path.normpath(path)
        if wanted == path or wanted.startswith(path.rstrip("/") + "/"):
            found = (len(path), os.path.normpath(place + wanted[len(path.rstrip("/")) :]))
            best = max(best or found, found)
    return best[1] if best is not None else None

"""Maps an image to the program that runs for it on this machine, where there is no container engine."""

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pliant.model.workload import JOB_FOLDER, Launch

_QUICKSTART = "pliant.engines.local.images.quickstart"
_QUICKSTARTS = ("gcr.io/run-ai-demo/quickstart", "runai.jfrog.io/demo/quickstart")
_RELATIVES = {"quickstart-distributed": "distributed", "quickstart-hpo": "hpo"}
"""Other images of the same two places, and the packages that stand for them."""

_SYSTEMS = (
    "almalinux", "alpine", "amazonlinux", "archlinux", "bash", "busybox", "centos", "debian", "fedora",
    "rockylinux", "ubuntu",
)  # fmt: skip

_SHELL = ("bash",)
"""What a system's image runs without a command; sh if there is no bash, which is checked at each use."""

_NOTEBOOKS = (
    "jupyter/minimal-notebook",
    "jupyter/scipy-notebook",
    "jupyter/pytorch-notebook",
    "jupyter/tensorflow-notebook",
    "jupyter-lab",
)  # fmt: skip


class CatalogueError(Exception):
    """This launch cannot run here; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What stands for an image."""

    command: tuple[str, ...] = ()  # the entry point; empty: none
    env: tuple[tuple[str, str], ...] = ()
    workdir: str = ""  # empty: where the workload was submitted
    known: bool = True
    own: bool = False  # one of Pliant's programs: it runs in the job folder, with the server's environment
    default: tuple[str, ...] = ()  # what runs without a command; arguments replace it, options are added


class Catalogue:
    """Built-in images and those of the user's file, which is read again whenever it has changed."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stamp: tuple[int, int] | None = None  # of the file as it was read: mtime in ns, size
        self._entries: dict[str, Entry] = {}
        self._trouble = ""

    def resolve(self, launch: Launch) -> tuple[Entry, tuple[str, ...]]:
        """(entry, argv): the command replaces the entry point, args follow either. Raises CatalogueError.

        Without a command and an entry point the arguments are the command, as in containers.
        """
        entry = self._find(launch.image)
        command = launch.command or entry.command
        if not command and (not launch.args or launch.args[0].startswith("-")):
            command = ("sh",) if entry.default is _SHELL and shutil.which("bash") is None else entry.default
        if command or entry.default or (launch.args and not launch.image):
            return entry, (*command, *launch.args)
        if not launch.image:
            raise CatalogueError("there is neither an image nor a command: pliant submit NAME -- COMMAND...")
        examples = ", ".join((*_QUICKSTARTS, "ubuntu", "python"))
        raise CatalogueError(
            f"image {launch.image} is unknown here, and without a command there is nothing to run: the local "
            f"engine has no container images. Say --command, use one that is built in ({examples}, …), or "
            f"describe the image in {self._file}"
        )

    def notice(self, launch: Launch) -> str | None:
        """What the submitter should know: an unknown image's command runs on the host."""
        try:
            entry, argv = self.resolve(launch)
        except CatalogueError:
            return None
        if entry.known:
            return None
        return (
            f"image {launch.image} is unknown here: {argv[0]} runs on this machine as it is, without the "
            f"image's files; describe the image in {self._file} to change that"
        )

    def _find(self, image: str) -> Entry:
        if not image:
            return Entry()
        self._reload()
        name = bare(image)
        for key in (image, name):
            if key in self._entries:
                return self._entries[key]
        if name in _QUICKSTARTS:
            return _own(_QUICKSTART)
        place, _, last = name.rpartition("/")
        if last in _RELATIVES and f"{place}/quickstart" in _QUICKSTARTS:
            return _relative(_RELATIVES[last])
        if last == "quickstart-elastic" and f"{place}/quickstart" in _QUICKSTARTS:
            return _own(_QUICKSTART, ("QUICKSTART_LIBRARY", "auto"))
        if name == "elasticdl":
            return _own("pliant.train.elasticdl")
        if name in _NOTEBOOKS:
            return _notebook(image)
        short = name.removeprefix("docker.io/").removeprefix("library/")
        if short == "python":
            return Entry(default=(sys.executable,))
        if short in _SYSTEMS:
            return Entry(default=_SHELL)
        if self._trouble:
            raise CatalogueError(f"image {image} is not built in, and {self._trouble}")
        return Entry(known=False)

    def _reload(self) -> None:
        try:
            stat = self._file.stat()
            stamp = (stat.st_mtime_ns, stat.st_size)
            if stamp == self._stamp:
                return
            text = self._file.read_text()
        except FileNotFoundError:
            self._entries, self._trouble, self._stamp = {}, "", None
            return
        try:
            self._entries, self._trouble = read(text), ""
        except ValueError as error:
            self._trouble = f"{self._file} cannot be read: {error}"
        self._stamp = stamp


def _own(module: str, *env: tuple[str, str]) -> Entry:
    return Entry((sys.executable, "-m", module), env, workdir=JOB_FOLDER, own=True)


def _relative(package: str) -> Entry:
    """Its scripts can import what is in the package's folder, such as `runai`."""
    return _own(f"{__package__}.{package}", ("PYTHONPATH", str(Path(__file__).with_name(package))))


def _notebook(image: str) -> Entry:
    """The machine's own Jupyter, at the port that the task is given."""
    if shutil.which("jupyter") is None:
        raise CatalogueError(
            f"image {image} runs the Jupyter of this machine, which is not installed: pip install jupyterlab"
        )
    words = "exec jupyter lab --no-browser --ip=127.0.0.1 --port=${PORT:-8888} --ServerApp.port_retries=0"
    return Entry(("sh", "-c", words + ' "$@"', "jupyter"))


def bare(image: str) -> str:
    """The image's name without tag and digest."""
    name = image.partition("@")[0]
    folder, slash, last = name.rpartition("/")
    return folder + slash + last.partition(":")[0]


def read(text: str) -> dict[str, Entry]:
    """The user's file: {image: {command: [...], env: {...}, workdir: ...}}. Raises ValueError."""
    import yaml  # most have no such file

    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"no YAML: {error}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ValueError("it must map images to {command: [...], env: {...}, workdir: ...}")
    return {str(image): _entry(str(image), value) for image, value in document.items()}


def _entry(image: str, value: Any) -> Entry:
    if not isinstance(value, Mapping) or not set(value) <= {"command", "env", "workdir"}:
        raise ValueError(f"{image}: must have command, env or workdir, and nothing else")
    command, env, workdir = value.get("command") or [], value.get("env") or {}, value.get("workdir") or ""
    if not isinstance(command, Sequence) or isinstance(command, str):
        raise ValueError(f"{image}: command must be a list, e.g. [python, train.py]")
    if not isinstance(env, Mapping):
        raise ValueError(f"{image}: env must be a mapping, e.g. {{EPOCHS: 3}}")
    return Entry(
        tuple(str(word) for word in command),
        tuple((str(name), str(text)) for name, text in env.items()),
        str(workdir),
    )

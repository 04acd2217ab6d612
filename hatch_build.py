"""Builds the native parts: as hatchling's build hook for wheels and editable installs, or run as a script.

With PLIANT_COMPILE=1 a wheel also holds the scheduler's core compiled by mypyc, for one version of Python on
one platform, beside the same modules in plain Python. This takes about 150 s of one core.

Needs a plain C compiler ($CC, cc, gcc or clang). Without one the build still succeeds, with warnings: the
local engine then runs its supervisor as `python -S -E`, which costs about 10 MiB more per task, and shares of
a GPU are not enforced.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FLAGS = ["-std=gnu11", "-O2", "-s", "-Wall", "-Wextra"]
LIBRARY = ["-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-Bsymbolic", "-Wl,-z,defs"]
DEVICES = "src/pliant/devices/bin"
_SLOW = "tasks will run under the slower `python -S -E` supervisor"
_OPEN = "shares of a GPU will not be enforced"
_ALONE = "jobs cannot run as their users: no shared box"
_KEPT = "memory of shared GPUs of a cluster cannot be lent"
_BARE = "simulated GPUs will have no driver that programs can use"


class Part(NamedTuple):
    """One native program or library: made from sources (patterns) with the first of links that works."""

    target: str
    sources: tuple[str, ...]
    links: tuple[tuple[str, ...], ...]
    without: str  # what the user lacks if it could not be built


SHIM = ("entry", "lookup", "sys", "config", "ledger", "table", "memory", "pools", "blocks", "views", "launch")
SHIM += ("gate", "lease")
WARDEN = ("main", "config", "account", "group", "cores", "wall", "folders", "launch")
PARTS = (
    Part("src/pliant/engines/local/bin/pliant-supervise", ("native/supervise.c",), (("-static",), ()), _SLOW),
    Part(
        "src/pliant/engines/local/bin/pliant-warden",
        tuple(f"native/warden/{name}.c" for name in WARDEN),
        ((),),  # not static: it asks the machine's name service
        _ALONE,
    ),
    Part(
        f"{DEVICES}/sim/libcuda.so.1",
        tuple(f"native/sim/{name}.c" for name in ("card", "clock", "device", "memory", "work", "table")),
        ((*LIBRARY, "-pthread", "-Wl,-soname,libcuda.so.1"),),
        _BARE,
    ),
    Part(
        f"{DEVICES}/sim/libnvidia-ml.so.1",
        tuple(f"native/sim/{name}.c" for name in ("card", "clock", "nvml", "nvml_rest")),
        ((*LIBRARY, "-pthread", "-Wl,-soname,libnvidia-ml.so.1"),),
        _BARE,
    ),
    Part(
        f"{DEVICES}/libpliant-gpu.so",
        tuple(f"native/shim/{name}.c" for name in SHIM),
        # Links libdl explicitly so that the file loads where dlopen is not in libc (glibc before 2.34).
        ((*LIBRARY, "-Wl,--no-as-needed", "-l:libdl.so.2"), (*LIBRARY, "-ldl")),
        _OPEN,
    ),
    Part(f"{DEVICES}/pliant-gpu-used", ("native/used.c",), (("-static",), ()), _KEPT),
)


def compiler() -> list[str] | None:
    """The command of a C compiler, or None. $CC wins when set, even if it names no existing program."""
    wanted = os.environ.get("CC")
    for name in [wanted] if wanted is not None else ["cc", "gcc", "clang"]:
        words = shlex.split(name)
        if words and shutil.which(words[0]):
            return words
    return None


def compile_part(cc: list[str], root: Path, part: Part) -> str | None:
    """Compiles one part, linked in the first way that works. Returns None, or what the compiler said."""
    target = root / part.target
    sources = [str(root / source) for source in part.sources]
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        fresh = Path(folder) / target.name
        for link in part.links:
            command = [*cc, *FLAGS, *(f for f in link if f[:2] != "-l"), "-o", str(fresh), *sources]
            command += [flag for flag in link if flag.startswith("-l")]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                fresh.chmod(0o755)
                fresh.replace(target)  # atomic: a process that runs keeps its old file
                return None
        return f"{shlex.join(command)}\n{done.stderr.strip()}"


def build(root: Path) -> list[Path]:
    """Compiles every native part under root; returns those that exist now, warns about the others."""
    cc = compiler()
    built = []
    for part in PARTS:
        missing = [source for source in part.sources if not (root / source).exists()]
        if cc is None:
            trouble: str | None = "no C compiler (cc, gcc, clang or $CC)"
        elif missing:
            trouble = f"{missing[0]} is not here"
        else:
            trouble = compile_part(cc, root, part)
        target = root / part.target
        if trouble is None:
            built.append(target)
            continue
        target.unlink(missing_ok=True)  # never pack what another machine or an older source left behind
        print(
            f"pliant: WARNING: {target.name} was not built: {trouble}\n"
            f"pliant: WARNING: {part.without}; install a C compiler and build again to change that",
            file=sys.stderr,
        )
    return built


def core_modules(root: Path) -> list[str]:
    """The modules that are compiled, relative to src: the core without PLAIN."""
    source = root / "src"
    found = [*(source / "pliant/model").glob("*.py"), *(source / "pliant/sched").rglob("*.py")]
    named = sorted(str(path.relative_to(source)) for path in found if path.name != "__init__.py")
    return [name for name in named if not name.startswith(PLAIN)]


PLAIN = ("pliant/sched/explain/", "pliant/sched/world/rows.py")
"""Modules that stay plain Python: explanations are rarely needed, and mypyc compiles no generic dataclass."""


def compile_core(root: Path, folder: Path) -> dict[str, str]:
    """Compiles the core with mypyc in a copy under folder. Returns the files made -> their places in a wheel.

    Raises subprocess.CalledProcessError if it does not compile: a wheel requested compiled must be compiled.
    """
    copy = folder / "src"
    shutil.copytree(root / "src", copy, ignore=shutil.ignore_patterns("__pycache__", "bin", "*.so"))
    modules = core_modules(root)
    script = (
        "from setuptools import setup\n"
        "from mypyc.build import mypycify\n"
        f"core = mypycify({modules!r}, opt_level='3')\n"
        "for it in core:\n"
        "    it.extra_compile_args.append('-fvisibility=hidden')\n"  # otherwise no call is inlined
        "setup(name='core', packages=[], ext_modules=core)\n"
    )
    (copy / "setup.py").write_text(script)
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    subprocess.run(command, cwd=copy, check=True, stdout=sys.stderr)
    return {
        str(path): str(path.relative_to(copy)) for path in copy.rglob("*.so") if "build" not in path.parts
    }


class NativeBuildHook(BuildHookInterface):  # type: ignore[misc,type-arg]
    """Runs build() before hatchling packs: a wheel with native programs is bound to a platform only.

    A wheel with the compiled core is also bound to this version of Python.
    """

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """What a build needs besides hatchling; pip and build install it first."""
        return ["mypy[mypyc]~=2.4", "setuptools>=77"] if compiles() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """version is `editable` or `standard`; build_data is hatchling's, changed in place."""
        if self.target_name != "wheel":
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        if build(Path(self.root)):
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform}"
        if compiles() and version == "standard":
            self._folder = tempfile.TemporaryDirectory()
            build_data["force_include"].update(compile_core(Path(self.root), Path(self._folder.name)))
            python = f"cp{sys.version_info.major}{sys.version_info.minor}"
            build_data["pure_python"] = False
            build_data["tag"] = f"{python}-{python}-{platform}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    _folder: tempfile.TemporaryDirectory[str] | None = None


def compiles() -> bool:
    """True if the core is to be compiled."""
    return os.environ.get("PLIANT_COMPILE", "0") not in ("", "0")


if __name__ == "__main__":
    build(Path(__file__).resolve().parent)

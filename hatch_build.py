"""Builds the native parts: as hatchling's build hook for wheels and editable installs, or run as a script.

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
_BARE = "simulated GPUs will have no driver that programs can use"


class Part(NamedTuple):
    """One native program or library: made from sources (patterns) with the first of links that works."""

    target: str
    sources: tuple[str, ...]
    links: tuple[tuple[str, ...], ...]
    without: str  # what the user misses where it could not be built


SHIM = ("entry", "lookup", "sys", "config", "ledger", "table", "memory", "pools", "blocks", "views", "launch")
SHIM += ("gate", "lease")
PARTS = (
    Part("src/pliant/engines/local/bin/pliant-supervise", ("native/supervise.c",), (("-static",), ()), _SLOW),
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
        # libdl is named so that the file loads where dlopen does not yet live in libc (glibc before 2.34).
        ((*LIBRARY, "-Wl,--no-as-needed", "-l:libdl.so.2"), (*LIBRARY, "-ldl")),
        _OPEN,
    ),
)


def compiler() -> list[str] | None:
    """The command of a C compiler, or None. $CC wins when set, even where it names nothing that exists."""
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


class NativeBuildHook(BuildHookInterface):  # type: ignore[misc,type-arg]
    """Runs build() before hatchling packs: a wheel with a program inside is bound to a platform only."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """version is `editable` or `standard`; build_data is hatchling's, changed in place."""
        if self.target_name == "wheel" and build(Path(self.root)):
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform}"


if __name__ == "__main__":
    build(Path(__file__).resolve().parent)

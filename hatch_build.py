"""Builds the native programs: as hatchling's build hook for wheels and editable installs, or run as a script.

Needs a plain C compiler ($CC, cc, gcc or clang). Without one the build still succeeds, with a warning: the
local engine then runs its supervisor as `python -S -E`, which costs about 10 MiB more per task.
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
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROGRAMS = {"native/supervise.c": "src/pliant/engines/local/bin/pliant-supervise"}
FLAGS = ["-std=gnu11", "-O2", "-s", "-Wall", "-Wextra"]


def compiler() -> list[str] | None:
    """The command of a C compiler, or None. $CC wins when set, even where it names nothing that exists."""
    wanted = os.environ.get("CC")
    for name in [wanted] if wanted is not None else ["cc", "gcc", "clang"]:
        words = shlex.split(name)
        if words and shutil.which(words[0]):
            return words
    return None


def compile_program(cc: list[str], source: Path, target: Path) -> str | None:
    """Compiles source to target, static where libc allows it. Returns None, or what the compiler said."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        fresh = Path(folder) / target.name
        for link in (["-static"], []):
            command = [*cc, *FLAGS, *link, "-o", str(fresh), str(source)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                fresh.chmod(0o755)
                fresh.replace(target)  # atomic: a supervisor that runs keeps its old file
                return None
        return f"{shlex.join(command)}\n{done.stderr.strip()}"


def build(root: Path) -> list[Path]:
    """Compiles every native program under root; returns those that exist now, warns about the others."""
    cc = compiler()
    built = []
    for source, target in PROGRAMS.items():
        if cc is None:
            trouble: str | None = "no C compiler (cc, gcc, clang or $CC)"
        elif not (root / source).exists():
            trouble = f"{source} is not here"
        else:
            trouble = compile_program(cc, root / source, root / target)
        if trouble is None:
            built.append(root / target)
            continue
        (root / target).unlink(
            missing_ok=True
        )  # never pack what another machine or an older source left behind
        print(
            f"pliant: WARNING: {Path(target).name} was not built: {trouble}\n"
            "pliant: WARNING: tasks will run under the slower `python -S -E` supervisor; "
            "install a C compiler and build again to change that",
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

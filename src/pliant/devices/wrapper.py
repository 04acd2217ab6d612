"""Makes the folders that tasks on simulated cards search first: the drivers and a program `nvidia-smi`."""

import os
import shlex
import sys
from pathlib import Path

SMI = Path(__file__).with_name("smi.py")


def write_tools(folder: Path, drivers: Path) -> tuple[Path, Path]:
    """(folder of programs, folder of libraries), made where they are missing. Raises OSError."""
    programs, libraries = folder / "bin", folder / "lib"
    for one in (programs, libraries):
        one.mkdir(mode=0o700, exist_ok=True)
    for name in ("libcuda.so", "libnvidia-ml.so"):
        for end in ("", ".1"):
            _link(libraries / f"{name}{end}", drivers / f"{name}.1")
    text = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -S -E {shlex.quote(str(SMI))} "$@"\n'
    program = programs / "nvidia-smi"
    if not program.exists() or program.read_text() != text:
        fresh = program.with_name(f".{program.name}.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o700)
        fresh.rename(program)
    return programs, libraries


def _link(link: Path, target: Path) -> None:
    if not link.is_symlink() or os.readlink(link) != str(target):
        fresh = link.with_name(f".{link.name}.{os.getpid()}")
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(target)
        fresh.rename(link)

"""Imports with less processor time: no search for garbage, of which they make none; methods compiled once.

The standard library writes the methods of each dataclass as source text and compiles it again in every
process: for the 400 classes that a server imports this is a fifth of its start. It calls `exec`, and a
function of that name in its module comes before the built-in one. What was compiled is kept beside the
bytecode of this module. A text that is not there is compiled: without the file, or with one of another
version, only time is lost.
"""

import dataclasses
import gc
import importlib.util
import marshal
import os
import sys
from contextlib import suppress
from pathlib import Path
from types import CodeType
from typing import Any


class LightImports:
    """From `begin` to `end`, once in a process. Each program keeps what it uses in a file of its own."""

    def __init__(self, program: str) -> None:
        self.file = Path(importlib.util.cache_from_source(__file__)).with_suffix(f".{program}")
        self._kept: dict[str, CodeType] = {}
        self._used: dict[str, CodeType] = {}

    def begin(self) -> None:
        gc.disable()
        try:
            magic, kept = marshal.loads(self.file.read_bytes())  # as trusted as the bytecode beside it
            if magic == importlib.util.MAGIC_NUMBER:
                self._kept = kept
        except (OSError, EOFError, TypeError, ValueError):
            self._kept = {}  # none was kept yet, or not all of it reached the disk
        vars(dataclasses)["exec"] = self._exec

    def end(self) -> None:
        """Write what is new, if this process may write bytecode."""
        vars(dataclasses).pop("exec", None)
        gc.freeze()  # what imports made stays, and is never looked through
        gc.enable()
        if sys.dont_write_bytecode or self._used.keys() <= self._kept.keys():
            return
        part = self.file.with_name(f"{self.file.name}.{os.getpid()}")
        try:
            part.write_bytes(marshal.dumps((importlib.util.MAGIC_NUMBER, self._used)))
            part.chmod(Path(__file__).stat().st_mode & 0o666)  # who may read the module may read this
            part.replace(self.file)
        except OSError:  # nobody may write here, or the disk is full: as with bytecode
            with suppress(OSError):
                part.unlink()

    def _exec(self, text: str, names: dict[str, Any], local: dict[str, Any]) -> None:
        code = self._kept.get(text)
        if code is None:
            code = compile(text, "<string>", "exec", dont_inherit=True)
        self._used[text] = code
        exec(code, names, local)

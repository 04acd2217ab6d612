"""Imports the core, compiled if the wheel contains a compiled core, and says which one is in use.

This must be imported before anything of pliant.sched. If a compiled part does not fit this interpreter or
this machine, the same modules are loaded as plain Python.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

_ROOT = Path(__file__).parent
_COMPILED = ("pliant.model.", "pliant.sched.")


class _Plain:
    """Finds the modules of the core as Python files and ignores compiled ones beside them."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(_COMPILED):
            return None
        file = _ROOT.joinpath(*name.split(".")[1:]).with_suffix(".py")
        return spec_from_file_location(name, file) if file.exists() else None


def _load() -> tuple[bool, str]:
    """(True if the core is compiled, a sentence about it)."""
    try:
        from pliant.sched import cycle
    except ImportError as error:
        if not any(_ROOT.joinpath("sched").glob("*.so")):
            raise
        for name in [name for name in sys.modules if name.startswith(_COMPILED)]:
            del sys.modules[name]
        sys.meta_path.insert(0, _Plain())
        from pliant.sched import cycle  # fails here if the plain modules cannot be loaded either

        return False, f"plain Python, because the compiled core does not load here: {error}"
    if str(cycle.__file__).endswith(".py"):
        return False, "plain Python; a wheel built with PLIANT_COMPILE=1 is faster"
    return True, "compiled"


COMPILED, CORE = _load()

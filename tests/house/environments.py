"""Finds the extra Python environments of tests, which the `setup` of a folder of tests makes."""

import hashlib
import os
from pathlib import Path

from tests.house.gaps import gap


def python_of(folder: Path, lacking: str, hint: str) -> Path:
    """The interpreter of the environment of this folder's `setup`; a gap if `setup` was not run."""
    made = hashlib.sha256(b"".join((folder / name).read_bytes() for name in ("setup", "requirements.txt")))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    environment = cache / "pliant" / folder.name / made.hexdigest()[:16]
    if not (environment / "whole").exists():
        gap(lacking, hint)
    return environment / "bin" / "python"

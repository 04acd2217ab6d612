"""Runs a script of examples/train slowly while the test acts on its job: paced.py SCRIPT ARGS."""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

from pace import slowly

import pliant.train as pt

_init, _spec = pt.init, json.loads(os.environ["SPEC"])


def _paced(**options: Any) -> pt.Job:
    job = _init(on_applied=lambda _, ids: slowly(job, _spec, len(ids)), **options)
    return job


pt.init = _paced
sys.argv = sys.argv[1:]
sys.path.insert(0, str(Path(sys.argv[0]).parent))
runpy.run_path(sys.argv[0], run_name="__main__")

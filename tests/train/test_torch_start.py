"""Garbage collection is off while torch is imported; afterwards its state is as before."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ASK = (
    "import gc, sys; {before}\n"
    "from pliant.train.torch_start import import_torch\n"
    "import_torch(optimizers={optimizers})\n"
    "import torch\n"
    "print(torch.searched, 'torch._dynamo' in sys.modules, gc.isenabled())\n"
)


@pytest.mark.parametrize(
    ("before", "optimizers", "said"),
    [
        ("", False, "False False True"),
        ("", True, "False True True"),
        ("gc.disable()", True, "False True False"),
    ],
)
def test_it_is_imported_without_a_search(tmp_path: Path, before: str, optimizers: bool, said: str) -> None:
    torch = tmp_path / "torch"
    torch.mkdir()
    (torch / "__init__.py").write_text("import gc\nsearched = gc.isenabled()\n")
    (torch / "_dynamo.py").write_text("import gc\nassert not gc.isenabled()\n")
    done = subprocess.run(
        [sys.executable, "-c", ASK.format(before=before, optimizers=optimizers)],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == said, done.stderr

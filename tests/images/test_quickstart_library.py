"""The quickstart on pliant.train: another library, the same losses."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pliant.engines.local.images.catalogue import Catalogue
from pliant.engines.local.images.quickstart.__main__ import library
from pliant.engines.local.images.quickstart.settings import SettingsError
from pliant.model.workload import Launch

QUICKSTART = "pliant.engines.local.images.quickstart"


def run(**more: str) -> subprocess.CompletedProcess[str]:
    variables = {"QUICKSTART_STEPS": "20", "QUICKSTART_STEP_SECONDS": "0.001", "QUICKSTART_PRINT_EVERY": "1"}
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PLIANT_", "QUICKSTART_"))
    }
    return subprocess.run(
        [sys.executable, "-P", "-m", QUICKSTART],
        env=kept | variables | more,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def losses(text: str) -> list[tuple[int, float]]:
    return [(int(step), float(loss)) for step, loss in re.findall(r"^step=(\d+) loss=([\d.]+)", text, re.M)]


@pytest.mark.timeout(900)
def test_the_losses_are_those_of_numpy() -> None:
    expected, found = losses(run().stdout), losses(run(QUICKSTART_LIBRARY="pliant.train").stdout)
    assert [step for step, _ in found] == list(range(20))
    for (step, mine), (_, theirs) in zip(found, expected, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-9), step


def test_another_library_is_refused_with_the_names_there_are() -> None:
    done = run(QUICKSTART_LIBRARY="horovod")
    assert done.returncode == 2
    assert "QUICKSTART_LIBRARY=horovod: there are numpy, pliant.train and auto" in done.stderr


def test_the_elastic_image_has_the_library_where_torch_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    entry, argv = Catalogue(tmp_path / "none").resolve(
        Launch(image="gcr.io/run-ai-demo/quickstart-elastic:3")
    )
    elastic = dict(entry.env)
    assert argv[-1] == QUICKSTART
    assert library({}) == library({**elastic, "QUICKSTART_LIBRARY": "numpy"}) == "numpy"
    assert library(elastic) == library({"QUICKSTART_LIBRARY": "pliant.train"}) == "pliant.train"
    monkeypatch.setattr("pliant.engines.local.images.quickstart.__main__.find_spec", lambda _name: None)
    assert library(elastic) == "numpy"
    with pytest.raises(SettingsError, match="torch is not installed"):
        library({"QUICKSTART_LIBRARY": "pliant.train"})

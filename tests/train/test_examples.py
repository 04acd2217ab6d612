"""The examples run as their first lines say, in small."""

import json
import math
import runpy
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.train.jobs import Running
from tests.train.zygote import Zygote

pytestmark = pytest.mark.timeout(400)  # real processes: a busy machine is no failure
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "argv", "classes"),
    [("train_digits.py", ["--epochs", "2", "--cnn"], 10), ("train_text.py", ["--steps", "30"], 128)],
)
def test_example(
    zygote: Zygote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, argv: list[str], classes: int
) -> None:
    with Running(zygote, tmp_path, {}, script=EXAMPLES / name, argv=argv) as job:
        job.hold(2)
        status = job.finish(300)
    assert status["step"] == status["steps_total"]
    assert status["losses"][-1][1] < 0.8 * math.log(classes)  # guessing costs log(classes)
    (tmp_path / "status.json").write_text(json.dumps(status))
    monkeypatch.setattr(sys, "argv", ["x", str(tmp_path / "status.json"), str(tmp_path / "picture.svg")])
    runpy.run_path(str(EXAMPLES / "train_picture.py"), run_name="__main__")
    assert ElementTree.parse(tmp_path / "picture.svg").getroot().tag.endswith("svg")

"""The three examples of examples/train: each gives its original's results at any number of workers, and
differs from the original in a few lines."""

import difflib
import json
import os
import re
import runpy
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

from tests.train.jobs import Running
from tests.train.zygote import Zygote

pytestmark = pytest.mark.timeout(1200)  # real processes: a busy machine is no failure
ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "train"
PACED = Path(__file__).with_name("paced.py")
GUIDE = ROOT / "docs" / "guide" / "training.md"
# name: (arguments for about 40 steps, or for 200; updates), result file, changed lines
SHORT = {
    "classify": (["--epochs", "2", "--workers", "1"], 46),
    "transformer": (["--steps", "40"], 40),
    "finetune": (["--epochs", "1"], 69),
}
LONG = {
    "classify": (["--epochs", "9", "--workers", "1"], 207),
    "transformer": (["--steps", "200"], 200),
    "finetune": (["--epochs", "3"], 207),
}
RESULT = {"classify": "best.pt", "transformer": "writer.pt", "finetune": "classifier.pt"}
CHANGED = {"classify": (19, 23), "transformer": (21, 18), "finetune": (29, 37)}  # lines (added, removed)


def losses(file: Path) -> dict[int, float]:
    """Loss by step; for a redone step the last one."""
    found = {}
    for line in file.read_text().splitlines():
        step, loss = line.split()
        found[int(step)] = float(loss)
    return found


def original(zygote: Zygote, folder: Path, name: str, argv: list[str]) -> dict[int, float]:
    folder.mkdir(parents=True, exist_ok=True)
    where = ["--out", str(folder / RESULT[name]), "--log", str(folder / "losses.txt")]
    command = [sys.executable, str(EXAMPLES / f"{name}_original.py"), "--plain", *argv, *where]
    with (folder / "output").open("wb") as out:
        code = zygote.start(command, env=dict(os.environ), stdout=out).wait(600)
    assert code == 0, (folder / "output").read_text()
    return losses(folder / "losses.txt")


def converted(
    zygote: Zygote, folder: Path, name: str, argv: list[str], sizes: list[int], *, kill: bool = False
) -> tuple[dict[int, float], dict[str, Any]]:
    """Trains with another number of workers every few steps."""
    folder.mkdir(parents=True, exist_ok=True)
    where = ["--out", str(folder / RESULT[name]), "--log", str(folder / "losses.txt")]
    script = [str(EXAMPLES / f"{name}.py"), *argv, *where]
    with Running(zygote, folder, {}, script=PACED, argv=script) as job:
        job.hold(sizes[0])
        for number, size in enumerate(sizes[1:], 1):
            job.until(lambda s, at=5 * number: s["step"] >= at, 300)
            if kill and number == 1:
                generation = job.status()["generation"]
                os.kill(job.member_pids()[-1], signal.SIGKILL)
                job.until(lambda s, g=generation: s["generation"] > g, 300)
            job.hold(size)
            job.until(lambda s, size=size: s["world"] == size or s["state"] == "finished", 300)
        status = job.finish(600)
        assert status["warnings"] == []
    return losses(folder / "losses.txt"), status


@pytest.mark.parametrize("name", list(SHORT))
def test_the_losses_are_those_of_the_original(
    zygote: Zygote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    argv, steps = SHORT[name]
    expected = original(zygote, tmp_path / "original", name, argv)
    assert sorted(expected) == list(range(1, steps + 1))
    found, status = converted(zygote, tmp_path / "resized", name, ["--plain", *argv], [2, 3, 1], kill=True)
    assert found == pytest.approx(expected, rel=1e-5)
    assert len({change["world"] for change in status["changes"]}) > 1, "it was resized"
    outputs = []
    for folder in ("resized", "original"):
        model, batch = own_model(name, monkeypatch)
        model.load_state_dict(torch.load(tmp_path / folder / RESULT[name]))
        outputs.append(model.eval()(**batch))
    mine, theirs = (output.logits if name == "finetune" else output for output in outputs)
    torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-3)


def own_model(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """The model as the original script makes it, and an input."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    script = runpy.run_path(str(EXAMPLES / f"{name}_original.py"))
    if name == "classify":
        return script["network"](True), {"input": torch.linspace(0, 1, 128).reshape(2, 1, 8, 8)}
    codes = torch.arange(64).reshape(2, 32) % 40
    if name == "transformer":
        letters = len(script["Windows"](32 * 40, script["LENGTH"]).letters)
        return script["Writer"](letters, 0.0), {"codes": codes}
    model = script["ModelForSequenceClassification"](script["Config"](dropout=0.0))
    return model, {"input_ids": codes, "attention_mask": torch.ones_like(codes)}


@pytest.mark.long
@pytest.mark.parametrize("name", list(LONG))
@pytest.mark.parametrize("sizes", [[1], [2], [4], [2, 4, 1, 3]], ids=["1", "2", "4", "churn"])
def test_the_losses_are_those_of_the_original_for_long(
    zygote: Zygote, tmp_path: Path, name: str, sizes: list[int]
) -> None:
    argv, steps = LONG[name]
    expected = original(zygote, tmp_path / "original", name, argv)
    assert len(expected) == steps >= 200
    found, _ = converted(zygote, tmp_path / "c", name, ["--plain", *argv], sizes, kill=len(sizes) > 1)
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("name", list(LONG))
def test_with_dropout_batch_norm_and_augmentation_the_number_of_workers_changes_nothing(
    zygote: Zygote, tmp_path: Path, name: str
) -> None:
    """With logical_workers=4, which the examples set in this case."""
    argv, steps = LONG[name]
    first, _ = converted(zygote, tmp_path / "1", name, argv, [1])
    assert len(first) == steps
    for sizes in ([2], [4], [2, 4, 1, 3]):
        other, _ = converted(zygote, tmp_path / str(sizes), name, argv, sizes, kill=len(sizes) > 1)
        assert other == first, "bit for bit"


def changed(name: str) -> tuple[int, int]:
    """Lines of code (added, removed), without the first docstring."""
    texts = [
        re.sub(r'^""".*?"""\n', "", (EXAMPLES / f"{name}{end}.py").read_text(), flags=re.DOTALL).splitlines()
        for end in ("_original", "")
    ]
    diff = [
        line for line in difflib.unified_diff(*texts, lineterm="", n=0) if line[:2] not in ("--", "++", "@@")
    ]
    diff = [line for line in diff if line[1:].strip()]
    return sum(line[0] == "+" for line in diff), sum(line[0] == "-" for line in diff)


@pytest.mark.parametrize("name", list(CHANGED))
def test_the_lines_that_change_are_counted(name: str) -> None:
    assert changed(name) == CHANGED[name]
    added, removed = CHANGED[name]
    assert f"| `{name}.py` | {added} | {removed} |" in GUIDE.read_text(), "the guide says how many"


def test_the_picture_of_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = {
        "losses": [[1, 2.3], [20, 1.1], [40, 0.6]],
        "changes": [{"step": 0, "world": 2}, {"step": 10, "world": 3}],
        "step": 40,
        "steps_total": 40,
    }
    (tmp_path / "status.json").write_text(json.dumps(status))
    monkeypatch.setattr(sys, "argv", ["x", str(tmp_path / "status.json"), str(tmp_path / "picture.svg")])
    runpy.run_path(str(EXAMPLES / "picture.py"), run_name="__main__")
    assert ElementTree.parse(tmp_path / "picture.svg").getroot().tag.endswith("svg")


def test_the_command_of_the_guide(tmp_path: Path) -> None:
    """As a user types it, with its own processes."""
    argv = ["classify.py", "--epochs", "2", "--out", str(tmp_path / "c.pt")]
    done = subprocess.run(
        [sys.executable, "-m", "pliant.train", "run", "--workers", "2", *argv, "--log", str(tmp_path / "l")],
        cwd=EXAMPLES, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    epochs = re.findall(r"epoch (\d+): accuracy (0\.\d+)", done.stdout)
    assert [number for number, _ in epochs] == ["1", "2"], "rank 0 alone says so"
    assert (tmp_path / "c.pt").is_file()

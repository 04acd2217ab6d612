"""The faults of the library that uses these names: it would fail each of these tests."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.optim.lr_scheduler import StepLR

import runai.elastic
import runai.elastic.torch
import runai.ga.torch.optim
from runai.elastic.torch import BatchSampler
from runai.ga.torch.optim import Optimizer

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((256, 64, 1), (4, 64)),
        ((256, 64, 2), (2, 64)),
        ((256, 64, 4), (1, 64)),
        ((100, 30, 1), (4, 25)),
        ((100, 30, 3), (2, 17)),
        ((1, 8, 1), (1, 1)),
    ],
)
def test_the_plan(given: tuple[int, int, int], expected: tuple[int, int]) -> None:
    runai.elastic.torch.init(*given)
    assert (runai.elastic.steps, runai.elastic.batch_size) == expected
    assert (runai.elastic.global_batch_size, runai.elastic.gpus) == (given[0], given[2])
    assert runai.elastic.master


def test_no_batch_is_over_the_declared_maximum_and_none_is_too_small() -> None:
    """Fault 1: floor division gave batches over the maximum."""
    for batch in range(1, 130):
        for gpus in range(1, min(batch, 9) + 1):
            for cap in (1, 2, 3, 7, 30, 64):
                runai.elastic.torch.init(batch, cap, gpus)
                steps, each = runai.elastic.steps, runai.elastic.batch_size
                assert each <= cap and steps * each * gpus >= batch
                assert steps == 1 or math.ceil(math.ceil(batch / gpus) / (steps - 1)) > cap, (
                    "the fewest steps"
                )


def test_an_effective_batch_that_differs_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Fault 2: it differed silently."""
    runai.elastic.torch.init(256, 64, 2)
    assert capsys.readouterr().err == ""
    runai.elastic.torch.init(100, 30, 3)
    assert "make 102 records per update, not 100" in capsys.readouterr().err


@pytest.mark.parametrize("records", [100, 101, 103, 250, 99, 1])
def test_batches_are_exact_and_leave_nothing_out(records: int) -> None:
    """Faults 2, 4 and 5: each update has the global batch over all GPUs; an epoch keeps its remainder."""
    runai.elastic.torch.init(100, 30, 3)
    sampler = BatchSampler(records)
    updates = sampler.updates()
    assert [sum(sizes) for sizes in updates] == [100] * (records // 100) + (
        [records % 100] if records % 100 else []
    )
    assert max(max(sizes) for sizes in updates) <= 30 * 3
    epochs = [list(sampler), list(sampler)]
    for epoch in epochs:
        assert sorted(index for batch in epoch for index in batch) == list(range(records))
        assert len(epoch) == len(sampler)
    assert records < 3 or epochs[0] != epochs[1], "shuffled anew"


def problem() -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    x = torch.randn(103, 5, dtype=torch.float64)
    return torch.nn.Linear(5, 1).double(), x, x.sum(1, keepdim=True) + 1


def train(gpus: int, epochs: int = 2, *, whole: bool = False) -> list[torch.Tensor]:
    """The weights after two epochs of 103 records in batches of 20, of at most 6 on each GPU."""
    runai.elastic.torch.init(20, 10**6 if whole else 6, gpus)
    model, x, y = problem()
    batches = BatchSampler(len(x))
    optimizer = runai.ga.torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, batches=batches)
    scheduler = StepLR(optimizer, 1, gamma=0.5)
    for _ in range(epochs):
        for indices in batches:
            optimizer.zero_grad()
            ((model(x[indices]) - y[indices]) ** 2).mean().backward()
            optimizer.step()
        scheduler.step()
    return [parameter.detach() for parameter in model.parameters()]


def test_the_weights_do_not_depend_on_the_gpus() -> None:
    """Faults 3 and 6: gradients were summed without taking the mean, so fewer GPUs made larger steps."""
    reference = train(1, whole=True)
    for gpus in (1, 2, 3, 4):
        for mine, theirs in zip(train(gpus), reference, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)


def test_what_is_left_of_an_epoch_does_not_leak_into_the_next() -> None:
    """Fault 5."""
    model = torch.nn.Linear(1, 1, bias=False)
    optimizer = Optimizer(torch.optim.SGD(model.parameters(), lr=1.0), 4)
    before = model.weight.item()
    for _ in range(3):
        model(torch.ones(1, 1)).sum().backward()
        optimizer.step()
    assert not optimizer.stepped and model.weight.item() == before
    optimizer.flush()
    assert optimizer.stepped and model.weight.item() == pytest.approx(before - 1)
    optimizer.flush()
    assert model.weight.item() == pytest.approx(before - 1), "nothing is left"


def test_state_goes_through_a_checkpoint() -> None:
    model, x, y = problem()
    optimizer = Optimizer(torch.optim.Adam(model.parameters(), lr=0.1), 2)
    for _ in range(2):
        ((model(x) - y) ** 2).mean().backward()
        optimizer.step()
    other = Optimizer(torch.optim.Adam(model.parameters(), lr=0.3), 2)
    other.load_state_dict(optimizer.state_dict())
    assert other.param_groups[0]["lr"] == 0.1 and len(other.state) == 2


@pytest.mark.parametrize("given", [(0, 1, 1), (1, 0, 1), (8, 1, 0), (3, 1, 4)])
def test_what_cannot_be_planned_is_refused(given: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError):
        runai.elastic.torch.init(*given)


def test_only_torchs_optimizers_have_names_here() -> None:
    with pytest.raises(AttributeError):
        runai.ga.torch.optim.lr_scheduler  # noqa: B018
    with pytest.raises(AttributeError):
        runai.ga.torch.optim.Nothing  # noqa: B018


@pytest.mark.parametrize(("visible", "gpus"), [("GPU-1,GPU-2", 2), ("", 1), ("GPU-1", 1)])
def test_gpus_are_those_of_the_task(monkeypatch: pytest.MonkeyPatch, visible: str, gpus: int) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    runai.elastic.torch.init(8, 4)
    assert runai.elastic.gpus == gpus


def test_reading_the_plan_needs_no_torch() -> None:
    code = (
        "import sys, runai.elastic.torch as e; e.init(100, 30, 1); import runai.elastic as r;"
        "print(r.steps, r.batch_size, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "4 25 False\n"


@pytest.mark.parametrize("beside", ["", "src/pliant/engines/local/images/hpo"])
def test_all_names_are_there_with_and_without_the_search_image(beside: str) -> None:
    code = (
        "import runai.hpo, runai.elastic.torch, runai.ga; from runai.hpo import init, pick, report;"
        "print(runai.hpo.init is init)"
    )
    folder = str(ROOT / beside) if beside else ""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("True\n", "")

"""A world of one worker in the test's process: the interface, and bad input as a script meets it."""

import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from pliant.train import commands
from pliant.train.agent.fleet import Fleet
from pliant.train.commands import main
from pliant.train.errors import BadCheckpoint, BadData, BadSettings, TrainError
from pliant.train.worker.job import Job
from pliant.train.worker.snapshot import load_weights
from pliant.train.worker.start import init
from tests.train.test_data import Broken

X = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
Y = X.sum(1, keepdim=True)


@pytest.fixture(autouse=True)
def _outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PLIANT_TRAIN_MASTER", "PLIANT_CHECKPOINT_DIR", "PLIANT_ATTEMPT_DIR"):
        monkeypatch.delenv(name, raising=False)


def train(
    *,
    epochs: int = 2,
    data: Any = (X, Y),
    batch: int = 16,
    each: Callable[[Job], None] = lambda _job: None,
    **options: Any,
) -> tuple[Job, nn.Module, list[int]]:
    seen: list[int] = []
    torch.manual_seed(0)
    job = init(device="cpu", on_applied=lambda _step, ids: seen.extend(ids), **options)
    model = nn.Linear(data[0].shape[1] if isinstance(data, tuple) else 1, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    wrapped, _, _ = job.prepare(model, optimizer)
    rows = job.data(data, global_batch=batch, max_micro_batch=5)
    for _ in job.epochs(epochs):
        for b in rows:
            with job.step(b) as step:
                step.backward(nn.functional.mse_loss(wrapped(b.x), b.y.reshape(-1, 1).float()))
            if each is not None:
                each(job)
    return job, model, seen


def test_a_script_outside_of_any_job() -> None:
    job, _, seen = train()
    assert (job.rank, job.size, job.applied) == (0, 1, 8)
    assert sorted(seen[:50]) == sorted(seen[50:]) == list(range(50)) and seen[:50] != seen[50:]
    assert job.loss is not None and job.loss < 5


def test_a_step_equals_the_plain_loop() -> None:
    """Micro-batches, a short batch and the optimizer give the result of one loss over the batch."""
    _, model, seen = train(epochs=1)
    torch.manual_seed(0)
    plain = nn.Linear(3, 1)
    optimizer = torch.optim.Adam(plain.parameters(), lr=0.05)
    for start in range(0, 50, 16):
        ids = seen[start : start + 16]
        optimizer.zero_grad()
        nn.functional.mse_loss(plain(X[ids]), Y[ids]).backward()
        optimizer.step()
    torch.testing.assert_close(model.weight, plain.weight, rtol=1e-5, atol=1e-6)


def test_checkpoints_and_the_final_model(tmp_path: Path) -> None:
    _, model, _ = train(checkpoint_dir=tmp_path, checkpoint_every=3)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "final", "step-000000000003", "step-000000000006", "step-000000000008",
    ]  # fmt: skip
    fresh = nn.Linear(3, 1)
    assert load_weights(tmp_path, fresh) == 8 and torch.equal(fresh.weight, model.weight)
    again, _, seen = train(epochs=4, checkpoint_dir=tmp_path)
    assert again.applied == 16 and len(seen) == 100, "goes on after step 8"
    with pytest.raises(BadCheckpoint, match="trained with global_batch 16, this job asks for 10"):
        train(batch=10, checkpoint_dir=tmp_path)
    wide = torch.randn(50, 4)
    with pytest.raises(BadCheckpoint, match="holds another model"):
        train(data=(wide, Y), checkpoint_dir=tmp_path)


def test_evaluation_on_the_weights_of_one_step() -> None:
    torch.manual_seed(0)
    job = init(device="cpu")
    model = nn.Linear(3, 1)
    wrapped, _, _ = job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    rows = job.data((X, Y), global_batch=10)
    expected = {}
    job.evaluation((X, Y), lambda m, b: {"mse": ((m(b[0]) - b[1]) ** 2).sum()}, every=5, batch=7)
    for _ in job.epochs(2):
        for b in rows:
            with job.step(b) as step:
                step.backward(nn.functional.mse_loss(wrapped(b.x), b.y))
            if job.applied % 5 == 0:
                expected[job.applied] = nn.functional.mse_loss(model(X), Y).item()
    assert {step: found["mse"] for step, found in job.evaluations.items()} == pytest.approx(expected)


def test_records_that_cannot_be_read() -> None:
    with pytest.raises(
        BadData, match=r"Record 3 cannot be read: ValueError: record 3 is rotten.*max_skipped_records is 0"
    ):
        train(data=Broken({3}))
    _, _, seen = train(epochs=1, data=Broken({3}, flaky={4}), max_skipped_records=1)
    assert sorted(seen) == [index for index in range(20) if index != 3]


class Shrinking:
    def __init__(self) -> None:
        self.length = 20

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.ones(1), torch.ones(1)


def test_a_dataset_that_shrinks_or_is_empty() -> None:
    data = Shrinking()

    def shrink(job: Job) -> None:
        data.length = 19

    with pytest.raises(BadData, match="shrunk from 20 to 19 records"):
        train(data=data, each=shrink)
    with pytest.raises(BadData, match="The dataset is empty"):
        train(data=(X[:0], Y[:0]))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda j: j.data((X, Y), global_batch=0), "at least one record"),
        (lambda j: j.data((X, Y), global_batch=4, max_micro_batch=0), "at least one record"),
        (lambda j: next(iter(j.epochs(1))), r"prepare\(\) and data\(\) before"),
        (lambda j: j.step(None), "that the loop over the data has just given"),
        (lambda j: j.evaluation((X, Y), lambda m, b: {}, every=0), "every and batch must be at least 1"),
        (lambda j: j.prepare(nn.Linear(1, 1), None, scheduler_per="year"), "'step' or 'epoch'"),
    ],
)
def test_settings_that_make_no_sense(wrong: Callable[[Job], Any], words: str) -> None:
    with pytest.raises(BadSettings, match=words):
        wrong(init(device="cpu"))


def test_logical_workers_need_a_record_each() -> None:
    with pytest.raises(BadSettings, match="cannot be shared by 20 logical workers"):
        train(logical_workers=20)


def test_a_loss_that_is_no_number_and_a_batch_without_backward() -> None:
    job = init(device="cpu")
    model = nn.Linear(3, 1)
    job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    rows = iter(job.data((X, Y), global_batch=10))
    next(iter(job.epochs(1)))
    batch = next(rows)
    with pytest.raises(BadSettings, match="the loss has the shape"), job.step(batch) as step:
        step.backward(model(batch.x))
    with pytest.raises(BadSettings, match=r"went by without step\.backward"), job.step(batch):
        pass


def test_an_epoch_without_a_step() -> None:
    job = init(device="cpu")
    model = nn.Linear(3, 1)
    job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    job.data((X, Y), global_batch=10)
    with pytest.raises(BadSettings, match="iterate over the data"):
        list(job.epochs(2))


def test_work_of_a_queue_alone() -> None:
    done: list[int] = []
    job = init(device="cpu")
    assert job.work("q", 23, done.extend, size=5, stride=2, epochs=2) == 0
    assert sorted(done) == sorted([*range(23), *range(23)])

    def picky(places: range) -> None:
        if 7 in places:
            raise ValueError("not seven")

    with pytest.raises(BadData, match=r"1 record of 'q2' failed at every try"):
        job.work("q2", 23, picky, size=5)
    assert job.work("q3", 23, picky, size=5, max_skipped_records=1) == 1


def test_the_library_is_fast_to_import_and_needs_no_torch() -> None:
    code = (
        "import sys, pliant.train; assert not {'torch', 'numpy'} & set(sys.modules); print(len(sys.modules))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    torchless = "import pliant.train.master.service, pliant.train.commands"
    code = f"import sys; sys.modules['torch'] = None; {torchless}"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["run", "--workers", "8:2", __file__], "at least 1 and at most the maximum"),
        (["run", "--workers", "0", __file__], "the minimum must be at least 1"),
        (["run", "--workers", "two", __file__], "takes a number or MIN:MAX"),
        (["run", "--workers", "2", "no-such.py"], "Script no-such.py not found"),
        (["run"], "Name the script to run"),
        (["status", "--dir", "/nonexistent"], "No master has run in /nonexistent"),
        (["master", "--dir", "/nonexistent", "--job", "j"], "token is missing"),
    ],
)
def test_bad_command_lines(argv: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 1
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("shown", "usable", "expected"),
    [
        (None, 4, ["0", "1", "2", "3"]),
        ("0,1, 2,3", 4, ["0", "1", "2", "3"]),
        ("4,5,6,7,8", 5, ["4", "5", "6", "7"]),
        ("MIG-a,MIG-b,MIG-c,MIG-d", 1, ["MIG-a", "MIG-b", "MIG-c", "MIG-d"]),
        ("2,9,3", 1, ["2", "2#1", "2#2", "2#3"]),
        ("GPU-a,GPU-b", 2, ["GPU-a", "GPU-b", "GPU-a#1", "GPU-b#1"]),
        (None, 0, ["cpu-0", "cpu-1", "cpu-2", "cpu-3"]),
        ("-1", 0, ["cpu-0", "cpu-1", "cpu-2", "cpu-3"]),
    ],
)
def test_workers_are_spread_over_the_visible_gpus(
    shown: str | None, usable: int, expected: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(commands, "_usable_gpus", lambda: usable)
    if shown is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    devices = commands.devices_for(4)
    assert devices == expected

    started: list[dict[str, str]] = []

    class Started:
        def __init__(self, _command: list[str], *, env: dict[str, str], **_: object) -> None:
            started.append(env)

    client: Any = SimpleNamespace(call=lambda *_args, **_options: {"stop": None})
    Fleet(["python"], client, tmp_path, start=Started).hold(devices)
    assert [env["PLIANT_TRAIN_DEVICE"] for env in started] == expected
    own = [shown if name.startswith("cpu-") else name.partition("#")[0] for name in expected]
    assert [env.get("CUDA_VISIBLE_DEVICES") for env in started] == own


def test_gpus_are_counted_as_torch_counts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLIANT_SIM_CARDS", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert commands._usable_gpus() == torch.cuda.device_count()
    monkeypatch.setattr(commands.ctypes, "CDLL", lambda _: pytest.fail("no driver is looked for"))
    for name, value in (("CUDA_VISIBLE_DEVICES", ""), ("PLIANT_SIM_CARDS", "2")):
        with monkeypatch.context() as hidden:
            hidden.setenv(name, value)
            assert commands._usable_gpus() == 0
    monkeypatch.setattr(commands.ctypes, "CDLL", lambda _: None)  # a driver
    assert commands._usable_gpus() == torch.cuda.device_count()
    with monkeypatch.context() as torchless:
        torchless.setattr(commands.sys, "executable", "/bin/false")
        assert commands._usable_gpus() == 0


def test_errors_are_of_one_family() -> None:
    assert issubclass(BadData, TrainError) and issubclass(BadCheckpoint, TrainError)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(epochs=1)

"""What a real training script does, in a world of one worker: each row of the interface, and each wrong use
with its message. With several workers: test_idioms_resized.py."""

import contextlib
import copy
import errno
import gc
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from pliant.train import commands
from pliant.train.errors import BadCheckpoint, BadData, BadSettings
from pliant.train.worker import checkpoint
from pliant.train.worker.job import Job
from pliant.train.worker.precision import Precision
from pliant.train.worker.start import init

X = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
Y = X.sum(1, keepdim=True)
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PLIANT_TRAIN_MASTER", "PLIANT_CHECKPOINT_DIR", "PLIANT_ATTEMPT_DIR"):
        monkeypatch.delenv(name, raising=False)


class Training:
    """A linear model on X and Y."""

    def __init__(
        self, *, data: Any = (X, Y), batch: int = 10, read: dict[str, Any] | None = None, **options: Any
    ):
        starts = {"checkpoint_dir", "checkpoint_every", "logical_workers", "on_applied"}
        torch.manual_seed(0)
        self.job: Job = init(device="cpu", **{k: v for k, v in options.items() if k in starts})
        self.module = nn.Linear(3, 1)
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=0.05, momentum=0.9)
        self.loader = self.job.data(data, global_batch=batch, **(read or {}))
        given = {k: v for k, v in options.items() if k not in starts}
        scheduler = given.pop("scheduler", None)
        made = scheduler(self.optimizer) if scheduler is not None else None
        self.model, _, self.scheduler = self.job.prepare(self.module, self.optimizer, made, **given)

    def loss(self, batch: Any) -> torch.Tensor:
        return nn.functional.mse_loss(self.model(batch.x), batch.y)

    def steps(self, epochs: int = 1) -> Iterator[Any]:
        """Yields each micro-batch's step after its block."""
        for _ in self.job.epochs(epochs):
            for batch in self.loader:
                with self.job.step(batch) as step, self.job.autocast():
                    step.backward(self.loss(batch))
                yield step

    def run(self, epochs: int = 1, after: Callable[["Training"], Any] = lambda _training: None) -> "Training":
        """Trains and calls `after` after each micro-batch."""
        for _ in self.steps(epochs):
            after(self)
        return self


def plain(epochs: int, update: Callable[[nn.Module, Any, torch.Tensor, torch.Tensor], None]) -> nn.Module:
    """The same training in a plain loop, with records in order."""
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(epochs):
        for start in range(0, 50, 10):
            optimizer.zero_grad()
            update(model, optimizer, X[start : start + 10], Y[start : start + 10])
    return model


# -- backward, clipping, precision ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            lambda t, b, s: s.backward(t.loss(b).item()),
            "needs the loss tensor, not float: pass loss, not loss",
        ),
        (
            lambda t, b, s: s.backward(t.loss(b).detach()),
            r"has no gradient; was it computed under torch.no_grad",
        ),
        (lambda t, b, s: (s.backward(t.loss(b)), s.backward(t.loss(b))), "called twice for one micro-batch"),
        (lambda t, b, s: s.backward(t.loss(b), reduction="max"), "'mean' or 'sum', not 'max'"),
    ],
)
def test_a_wrong_backward(wrong: Callable[..., Any], words: str) -> None:
    t = Training()
    next(iter(t.job.epochs(1)))
    batch = next(iter(t.loader))
    with pytest.raises(BadSettings, match=words), t.job.step(batch) as step:
        wrong(t, batch, step)


def test_gradients_are_clipped_once_per_update() -> None:
    norms: list[float] = []

    def update(model: nn.Module, optimizer: Any, x: torch.Tensor, y: torch.Tensor) -> None:
        nn.functional.mse_loss(model(x), y).backward()
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), 0.5)))
        optimizer.step()

    expected = plain(2, update)
    t = Training(max_grad_norm=0.5, read={"shuffle": False, "max_micro_batch": 3})
    assert t.job.grad_norm is None
    found = [t.job.grad_norm for step in t.steps(2) if step.applied]
    assert found == pytest.approx(norms, rel=1e-5) and max(norms) > 0.5
    torch.testing.assert_close(t.module.weight, expected.weight, rtol=1e-5, atol=1e-6)
    with pytest.raises(BadSettings, match="max_grad_norm must be above 0, not 0"):
        Training(max_grad_norm=0)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_mixed_precision_does_what_torch_does(precision: str) -> None:
    """fp16 overflows at first: the update is skipped, its records count as used, the scheduler waits."""
    scaler = torch.amp.GradScaler("cpu", enabled=precision == "fp16")
    skipped = 0

    def update(model: nn.Module, optimizer: Any, x: torch.Tensor, y: torch.Tensor) -> None:
        nonlocal skipped
        kind = torch.float16 if precision == "fp16" else torch.bfloat16
        with torch.autocast("cpu", kind):
            loss = nn.functional.mse_loss(model(x), 30 * y)
        scaler.scale(loss).backward()
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        skipped += scaler.get_scale() < before

    expected = plain(2, update)
    seen: list[int] = []
    t = Training(
        data=(X, 30 * Y), precision=precision, read={"shuffle": False},
        scheduler=lambda o: StepLR(o, 1000), on_applied=lambda _s, ids: seen.extend(ids),
    ).run(2)  # fmt: skip
    assert t.job.skipped_updates == skipped and (skipped > 0) == (precision == "fp16")
    assert t.scheduler.last_epoch == 10 - skipped and seen == [*range(50), *range(50)]
    torch.testing.assert_close(t.module.weight, expected.weight, rtol=1e-6, atol=1e-7)


def test_a_loss_scale_of_one_is_continued(tmp_path: Path) -> None:
    t = Training(checkpoint_dir=tmp_path, precision="fp16")
    for _ in range(16):  # 65536 / 2**16
        t.job._loop.parts().precision.update(overflow=True)
    t.run()
    again = Training(checkpoint_dir=tmp_path, precision="fp16").run()
    assert again.job._loop.parts().precision.state_dict() == t.job._loop.parts().precision.state_dict()
    assert again.job._loop.parts().precision.scale == 1.0 and again.job.skipped_updates == 16


@pytest.mark.parametrize(
    ("state", "scale"),
    [
        (Precision("bf16", CPU).state_dict(), 65536.0),
        ({"scale": 1.0, "good": 0, "skipped": 0}, 65536.0),  # of an earlier version, with bf16 or without
        ({"scale": 0.5, "good": 7, "skipped": 18}, 0.5),  # of an earlier version, with fp16
    ],
)
def test_only_a_state_of_fp16_has_a_loss_scale(state: dict[str, Any], scale: float) -> None:
    precision = Precision("fp16", CPU)
    precision.load_state_dict(state)
    assert (precision.scale, precision.skipped) == (scale, state["skipped"])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: Training(precision="fp8"), "precision is 'bf16', 'fp16' or None"),
        (lambda: Training(extras={"scaler": torch.amp.GradScaler("cpu")}), 'Pass precision="fp16" instead'),
        (lambda: Training(scheduler=ReduceLROnPlateau), r"ReduceLROnPlateau needs a number"),
        (lambda: Training(data=DataLoader(TensorDataset(X, Y))), "not a DataLoader: pass loader.dataset"),
        (lambda: Training(data=Endless()), "An IterableDataset has no fixed order"),
        (lambda: Training(read={"collate": list}), "collate= needs a dataset of records"),
        (lambda: Training(read={"workers": -1}), "workers is at least 0"),
        (lambda: Training(read={"order": lambda _epoch: [50]}), r"order\(0\) names record 50; .* 0 to 49"),
        (lambda: Training(batch=60, read={"drop_last": True}), "drop_last leaves nothing of 50 records"),
        (lambda: Training(read={"order": lambda _epoch: []}), r"order\(0\) is empty"),
        (
            lambda: Training().job.evaluation((X, Y), lambda _m, _b: {}, every=0),
            "^evaluation: every and batch must be at least 1; got every=0, batch=256",
        ),
    ],
)
def test_what_cannot_be_trained_as_asked(wrong: Callable[[], Any], words: str) -> None:
    with pytest.raises((BadSettings, BadData), match=words):
        wrong()


class Endless(IterableDataset[int]):  # type: ignore[misc]
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


def test_what_pliant_does_itself_is_refused_in_the_loop() -> None:
    with pytest.raises(BadSettings, match=r"Remove optimizer.step\(\) from the loop"):
        Training().run(after=lambda t: t.optimizer.step())
    for leftover in (
        lambda t: t.optimizer.zero_grad(),
        lambda t: t.optimizer.zero_grad(set_to_none=False),
        lambda t: nn.utils.clip_grad_norm_(t.module.parameters(), 0.01),
    ):
        with pytest.raises(BadSettings, match=r"Remove optimizer.zero_grad\(\) and clip_grad_norm_\(\)"):
            Training(read={"max_micro_batch": 5}).run(after=leftover)
    Training().run(after=lambda t: t.optimizer.zero_grad())  # after an update no gradient is lost


# -- data ----------------------------------------------------------------------------------------------------


class Pictures:
    """Records with random noise."""

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return X[index] + torch.randn(3), Y[index]


def values(batch: int = 10, **read: Any) -> list[Any]:
    t = Training(data=Pictures(), batch=batch, read=read)
    return [batch.x for _ in t.job.epochs(2) for batch in watched(t)]


def watched(t: Training) -> Iterator[Any]:
    for batch in t.loader:
        yield batch
        with t.job.step(batch) as step:
            step.backward(t.loss(batch))


def test_reading_ahead_gives_the_same_batches() -> None:
    alone, ahead = values(max_micro_batch=4), values(max_micro_batch=4, workers=2, prefetch=3)
    assert len(alone) == 30 and all(torch.equal(a, b) for a, b in zip(alone, ahead, strict=True))


def test_a_training_after_another_one_in_the_same_process() -> None:
    """The first training is garbage when the reading processes are forked, and they collect it."""

    class Collecting(Pictures):
        collected = False

        def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
            self.collected = self.collected or gc.collect() >= 0
            return super().__getitem__(index)

    gc.disable()
    try:
        values()
        t = Training(data=Collecting(), read={"workers": 1})
        assert sum(1 for _ in t.job.epochs(1) for _ in watched(t)) == 5
    finally:
        gc.enable()


def test_a_script_that_fails_ends_with_its_reading_processes() -> None:
    code = """
        from tests.train.test_idioms import Pictures, Training
        t = Training(data=Pictures(), read={"workers": 2})
        for step in t.steps():
            raise ValueError("of the script")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "ValueError: of the script")


def test_what_a_record_draws_depends_on_the_record_and_the_epoch() -> None:
    whole, parts = values(shuffle=False), values(shuffle=False, max_micro_batch=3)
    torch.testing.assert_close(torch.cat(whole), torch.cat(parts), rtol=0, atol=0)
    first, second = torch.cat(whole).split(50)
    assert not torch.equal(first, second), "another epoch, another noise"


def test_the_short_batch_can_be_dropped() -> None:
    seen: list[int] = []
    t = Training(batch=16, read={"drop_last": True}, on_applied=lambda _s, ids: seen.extend(ids)).run(2)
    assert t.job.applied == 6 and len(t.loader) == 3
    assert len(set(seen[:48])) == len(set(seen[48:])) == 48


def test_an_order_of_ones_own() -> None:
    seen: list[int] = []
    orders = {0: [3, 3, 1, 4], 1: [4, 0, 0, 2]}  # as a weighted sampler draws
    Training(batch=3, read={"order": orders.get}, on_applied=lambda _s, ids: seen.extend(ids)).run(2)
    assert seen == [3, 3, 1, 4, 4, 0, 0, 2]
    with pytest.raises(BadData, match=r"order\(1\) has 2 records, order\(0\) has 3"):
        Training(batch=3, read={"order": lambda epoch: [0] * (3 - epoch)}).run(2)


def test_a_batch_of_named_fields() -> None:
    records = [{"x": X[i], "y": Y[i]} for i in range(50)]
    t = Training(
        data=records, read={"collate": lambda rs: {k: torch.stack([r[k] for r in rs]) for k in "xy"}}
    )
    for _ in t.job.epochs(1):
        for batch in watched(t):
            assert dict(**batch).keys() == {"x", "y"} and batch["x"] is batch.x and len(batch["y"]) == 10


# -- the model to the script ---------------------------------------------------------------------------------


def test_the_state_dict_is_the_modules_own(tmp_path: Path) -> None:
    t = Training().run()
    assert list(t.model.state_dict()) == ["weight", "bias"] == [n for n, _ in t.model.named_parameters()]
    assert t.model.in_features == 3 and t.model.weight is t.module.weight
    assert t.job.unwrap(t.model) is t.module is t.job.unwrap(t.module)
    torch.save(t.model.state_dict(), tmp_path / "m.pt")
    original = nn.Linear(3, 1)
    original.load_state_dict(torch.load(tmp_path / "m.pt"))
    assert torch.equal(original.weight, t.module.weight)
    other = {f"module.{name}": value + 1 for name, value in original.state_dict().items()}
    t.model.load_state_dict(other)  # as DistributedDataParallel saves it
    assert torch.equal(t.module.weight, original.weight + 1)
    with pytest.raises(AttributeError, match="no_such"):
        _ = t.model.no_such


def test_export_of_a_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "c"
    t = Training(checkpoint_dir=folder, checkpoint_every=2).run()
    for source, step in ((folder, 5), (folder / "final", 5), (folder / "step-000000000004", 4)):
        assert commands.main(["export", str(source), str(tmp_path / "m.pt")]) == 0
        assert capsys.readouterr().out == f"{tmp_path}/m.pt: the weights of step {step}, 2 tensors\n"
        assert (step == 5) == torch.equal(torch.load(tmp_path / "m.pt")["weight"], t.module.weight)
    assert commands.main(["export", str(tmp_path / "none"), str(tmp_path / "m.pt")]) == 1
    assert "There is no checkpoint in" in capsys.readouterr().err
    assert commands.main(["export", str(folder), "/nonexistent/m.pt"]) == 1
    assert "/nonexistent/m.pt cannot be written: No such file" in capsys.readouterr().err


# -- evaluation, the main worker, the script's own values ----------------------------------------------------


def test_a_metric_of_all_predictions() -> None:
    t = Training()
    rows: list[int] = []

    def metric(all: dict[str, torch.Tensor]) -> dict[str, float]:
        rows.append(len(all["guess"]))
        return {"worst": float((all["guess"] - all["truth"]).abs().max())}

    def score(model: Any, batch: Any) -> dict[str, Any]:
        return {"guess": t.job.gather(model(batch[0])), "truth": t.job.gather(batch[1])}

    t.job.evaluation((X, Y), score, metric=metric, batch=8)
    t.run(2)
    assert list(t.job.evaluations) == [5, 10] and rows == [50, 50], "once per epoch, each record once"
    assert t.job.evaluations[10]["worst"] == pytest.approx((t.module(X) - Y).abs().max().item())
    with pytest.raises(BadSettings, match=r"in the function of job\.evaluation"):
        t.job.gather(X)
    t = Training()
    t.job.evaluation((X, Y), score)
    with pytest.raises(BadSettings, match="brings values together for a metric"):
        t.run()
    t = Training()
    t.job.evaluation((X, Y), lambda m, b: {"x": t.job.gather(torch.ones(3))}, metric=dict)
    with pytest.raises(BadSettings, match=r"one row for each record: x has the shape \(3,\) for 50"):
        t.run()


def test_the_main_worker(capsys: pytest.CaptureFixture[str]) -> None:
    t = Training()
    calls: list[int] = []

    @t.job.on_main
    def save(number: int) -> int:
        calls.append(number)
        return number + 1

    assert t.job.is_main and save(3) == 4 and calls == [3]
    t.job.print("hello", 1, sep="-")
    assert capsys.readouterr().out == "hello-1\n"
    wrong = t.job.on_main(lambda: t.job._runtime.group.sum(torch.ones(1)))
    with pytest.raises(BadSettings, match=r"on_main must not contain collective calls\."):
        wrong()
    assert t.run().job.applied == 5, "and it is over with the function"


def test_values_of_the_script(tmp_path: Path) -> None:
    t = Training(checkpoint_dir=tmp_path)
    state = t.job.state(best=9.0, names=["a"])
    for step in t.steps(1):
        state.best = min(state.best, t.job.loss or 9.0) if step.applied else state.best
    assert state.best < 9.0 and repr(state).startswith("job.state(best=0.")
    again = Training(checkpoint_dir=tmp_path)
    kept = again.job.state(best=9.0, names=[])
    again.run(1)
    assert (kept.best, kept.names) == (state.best, ["a"]) and again.job.loss == t.job.loss
    with pytest.raises(BadSettings, match=r"job\.state\.best holds a tensor: store numbers"):
        kept.best = torch.ones(1)
    with pytest.raises(BadSettings, match=r"job\.state\.best is a set"):
        kept.best = {1}
    for wrong in (lambda: kept.worst, lambda: setattr(kept, "worst", 1)):
        with pytest.raises(AttributeError, match=r"no value 'worst': name it in job\.state\(worst="):
            wrong()


def test_values_are_undone_with_their_step() -> None:
    t = Training(read={"max_micro_batch": 5})
    state = t.job.state(seen=0, log=[])
    lost = True
    for step in t.steps():
        state.seen += 5
        state.log.append(t.job.applied)
        if lost and t.job.applied == 2 and t.job._loop.running is not None:  # in the middle of a step
            lost = False
            t.job._loop.discard()
        assert step is not None
    assert state.seen == 50 and state.log == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5]


def test_values_that_differ_between_workers_are_named() -> None:
    t = Training()
    state = t.job.state(best=0.89, bad=1)
    with pytest.warns(
        UserWarning, match=r"job.state.best differs between w2 \(0.91\) and w0 \(0.89\); using w2."
    ):
        t.job._loop._compare({"best": 0.91, "bad": 1}, "w2")
    assert state.best == 0.91


def test_the_script_ends_its_training_early(tmp_path: Path) -> None:
    t = Training(checkpoint_dir=tmp_path)
    seen = []
    for epoch in t.job.epochs(10):
        for _ in watched(t):
            pass
        seen.append(epoch)
        if epoch == 1:
            t.job.stop()
    assert seen == [0, 1] and (tmp_path / "final").is_dir()
    assert list(Training(checkpoint_dir=tmp_path).job.epochs(10)) == [], "and stays ended"


def test_what_follows_the_loop_over_the_data_runs_once_per_epoch(tmp_path: Path) -> None:
    """A checkpoint at an epoch's very end precedes the code after the loop: resuming there runs it too."""
    ended: list[list[int]] = []
    for break_off in (True, False):
        t = Training(checkpoint_dir=tmp_path, checkpoint_every=5)
        state = t.job.state(ended=[])
        with contextlib.suppress(KeyboardInterrupt):
            for epoch in t.job.epochs(3):
                for _ in watched(t):
                    pass
                t.job._loop.keeper.wait()
                if break_off and epoch == 1:
                    raise KeyboardInterrupt
                state.ended.append(epoch)
        ended.append(copy.copy(state.ended))
    assert ended == [[0], [0, 1, 2]]


def test_a_copied_state_from_behind_the_end_of_an_epoch_is_not_changed_by_it_again() -> None:
    t = Training()
    state = t.job.state(ended=0)
    for _ in t.job.epochs(2):
        for batch in watched(t):
            if t.job.applied == 4 and batch is not None:  # as a faster worker has it
                ahead = t.job._loop._collect()
        if t.job.applied == 5:
            ahead["script"] |= {"closed": 1, "values": {"ended": 1}}
            t.job._loop._load(ahead)
        state.ended += 1
    assert state.ended == 2


# -- checkpoints ---------------------------------------------------------------------------------------------


def test_without_safetensors_it_ends_before_the_first_step(tmp_path: Path) -> None:
    code = """
        import sys
        sys.modules["safetensors"] = None
        import pliant.train as pt
        from pliant.train.errors import TrainError
        try:
            pt.init(device="cpu", checkpoint_dir=sys.argv[1])
        except TrainError as error:
            print(error)
        assert pt.init(device="cpu", checkpoint_dir=False) is not None
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    expected = "Checkpoints need safetensors: pip install 'pliant[train]', or pass checkpoint_dir=False.\n"
    assert done.stdout == expected


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        BadCheckpoint, match=r"Checkpoints cannot be written to .*file: .*checkpoint_dir=False"
    ):
        init(device="cpu", checkpoint_dir=tmp_path / "file")


def written(t: Training) -> None:
    """Only waits for the writing thread."""
    store = t.job._loop.keeper._store
    if store is not None and store._writer is not None:
        store._writer.join()


def broken_saves(monkeypatch: pytest.MonkeyPatch, step: int, error: BaseException) -> None:
    whole = checkpoint.save

    def save(target: Path, *rest: Any) -> None:
        if target.name == f"step-{step:012}":
            raise error
        whole(target, *rest)

    monkeypatch.setattr(checkpoint, "save", save)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_disk_costs_a_warning_and_the_next_checkpoint_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    broken_saves(monkeypatch, 2, OSError(number, "no room"))
    t = Training(checkpoint_dir=tmp_path, checkpoint_every=2)
    with pytest.warns(UserWarning, match=r"Checkpoint of step 2 failed: .*no room.* The next"):
        t.run(after=written)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "final",
        "step-000000000004",
        "step-000000000005",
    ]


@pytest.mark.parametrize("error", [PermissionError(errno.EACCES, "not yours"), MemoryError("none left")])
def test_a_checkpoint_thread_that_fails_stops_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    broken_saves(monkeypatch, 2, error)
    t = Training(checkpoint_dir=tmp_path, checkpoint_every=2)
    with pytest.raises(BadCheckpoint, match=r"Checkpoint of step 2 failed: .*(not yours|none left)"):
        t.run(3, after=written)
    assert t.job.applied == 3, "begun after step 2, seen at the next boundary"


def test_a_checkpoint_when_the_script_asks(tmp_path: Path) -> None:
    t = Training(checkpoint_dir=tmp_path)
    for _ in t.steps():
        if t.job.applied == 3:
            t.job.save_checkpoint()
    assert [path.name for path in sorted(tmp_path.glob("step-*"))] == [
        "step-000000000003",
        "step-000000000005",
    ]

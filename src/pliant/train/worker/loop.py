"""The loop of global steps in one worker: meet, read, compute, sum, apply; a step is whole or did not
happen."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import torch

from pliant.train.data.batches import owned, share
from pliant.train.data.rows import Rows, to_device
from pliant.train.errors import BadData, BadSettings, GenerationOver, TrainError
from pliant.train.rendezvous.runtime import Hooks, Runtime
from pliant.train.worker.evaluate import Evaluation
from pliant.train.worker.model import Trained
from pliant.train.worker.snapshot import Keeper
from pliant.train.worker.steps import Batch, Part, Running, plan_step, random_seed, seed_all

REPORT_S = 0.5


class Loop:
    """Owns the step that is being computed. Filled in by the job's `prepare` and `data`."""

    def __init__(
        self,
        settings: dict[str, Any],
        runtime: Callable[[Hooks], Runtime],
        keeper: Keeper,
        on_applied: Callable[[int, Sequence[int]], None] | None,
    ) -> None:
        self.settings = settings
        self.keeper = keeper
        self.trained: Trained | None = None
        self.rows: Rows | None = None
        self.evaluation: Evaluation | None = None
        self.running: Running | None = None
        self.due: str | None = "join"  # why a meeting is due
        self.loss: float | None = None
        self.report: dict[str, Any] = {}
        self._on_applied = on_applied
        self._reported = self._stepped = time.monotonic()
        self._step_s: list[float] = []
        self.runtime = runtime(
            Hooks(self._collect, self._accept, self._restore, self._save, self._release, self._renew)
        )

    @property
    def applied(self) -> int:
        """Global steps that are in the weights."""
        return max(self.runtime.step, 0)

    def parts(self) -> Trained:
        """What is trained; raises BadSettings before `prepare`."""
        if self.trained is None:
            raise BadSettings("Call prepare(model, optimizer) first")
        return self.trained

    # -- meetings --------------------------------------------------------------------------------------

    def gather(self) -> None:
        """Enter the next generation if one is due; run the evaluation of this step if it is due."""
        met = False
        while True:
            if self.due is not None:
                why, self.due, met = self.due, None, True
                self.runtime.meet(why)
                self._stepped = time.monotonic()
            evaluation = self.evaluation
            if self.runtime.finished or evaluation is None or not evaluation.is_due(self.applied, met):
                return
            try:
                evaluation.run(self.parts().model.module, self.runtime, self.applied)
            except GenerationOver:
                self.due = "lost"
                continue
            self.report["evaluation"] = {"step": self.applied, **evaluation.results[self.applied]}
            return

    def _collect(self) -> Any:
        return self.parts().state()

    def _accept(self, state: Any) -> None:
        self.parts().load(state)

    def _restore(self, step: int) -> tuple[int, str | None]:
        return self.keeper.restore(self.parts(), self.settings, step)

    def _save(self, why: str) -> None:
        self.keeper.save(self.parts(), self.settings, self.applied, self.runtime.history, final=why == "done")

    def _release(self) -> None:
        if self.trained is not None:
            self.trained.model.release()

    def _renew(self) -> None:
        self.parts().model.renew()

    # -- one step --------------------------------------------------------------------------------------

    def one_step(self) -> Iterator[Batch]:
        """The micro-batches of the next step. It is applied, or discarded, when they are through."""
        runtime, trained = self.runtime, self.parts()
        plan = plan_step(self.settings, self.applied, runtime.rank, runtime.size)
        buffers = [buffer.detach().clone() for buffer in trained.buffers()]
        self.running = running = Running(plan, buffers)
        for part in plan.parts:
            if part.first and self.settings["logical_workers"]:
                trained.discard(buffers)  # each logical worker begins with the same buffers
            yield self._read(part, running)
            if self.running is not running:
                return
        if not plan.parts:  # there are more real workers than logical ones
            self._finish(running)

    def part_done(self, part: Part) -> bool:
        """A micro-batch is computed. True if that ended in the loss of the generation."""
        running = self.running
        if running is None:
            return True
        if part.last and self.settings["logical_workers"]:
            self._keep_lane(running, part.lane)
        return part is running.plan.parts[-1] and not self._finish(running)

    def discard(self) -> None:
        """This step is redone by the next generation."""
        if self.running is not None:
            self.parts().discard(self.running.buffers)
            self.running = None
        self.due = "lost"

    def _read(self, part: Part, running: Running) -> Batch:
        rows = self.rows
        if rows is None:
            raise BadSettings("Call data() first")
        value, good, bad = rows.whole(part.ids)
        for index, error in bad.items():
            self.runtime.quarantine(running.plan.epoch, index, error, self.settings["max_skipped_records"])
            running.skipped |= set() if part.ghost else {index}
        own = () if part.ghost else tuple(good)
        if not good:  # any other record, with weight 0: the collectives need a backward pass of everybody
            value, good = self._any_record(rows)
        return Batch(to_device(value, self.runtime.device), own, running.plan.step, part, len(good))

    def _any_record(self, rows: Rows) -> tuple[Any, list[int]]:
        for index in range(len(rows)):
            value, good, _ = rows.whole([index])
            if good:
                return value, good
        raise BadData("No record of the dataset can be read")

    def _keep_lane(self, running: Running, lane: int) -> None:
        trained = self.parts()
        running.gradients[lane] = trained.flat()
        if lane == 0:
            running.kept = [buffer.detach().clone() for buffer in trained.buffers()]
        trained.zero()

    def _finish(self, running: Running) -> bool:
        """Sum what is not summed yet and apply the step. False if the generation was lost before."""
        try:
            if self.settings["logical_workers"]:
                self._sum_in_order(running)
            flag = self._agree(running)
        except GenerationOver:
            self.discard()
            return False
        self._apply(running)
        if flag:
            self.due = "boundary"
        return True

    def _sum_in_order(self, running: Running) -> None:
        """Gradients of logical workers, added in their order whoever has computed them."""
        logical, group, trained = self.settings["logical_workers"], self.runtime.group, self.parts()
        total: torch.Tensor | None = None
        for lane in range(logical):
            a, b = share(running.plan.count, logical, lane)
            if a == b:
                continue
            owner = next(r for r in range(self.runtime.size) if lane in owned(logical, self.runtime.size, r))
            vector = running.gradients.get(lane)
            vector = torch.zeros_like(trained.flat()) if vector is None else vector
            group.send(vector, owner)
            total = vector.clone() if total is None else total.add_(vector)
        assert total is not None, "a step has at least one record"
        trained.unflatten(total)
        if running.kept is not None:
            for buffer, kept in zip(trained.buffers(), running.kept, strict=True):
                buffer.copy_(kept)

    def _agree(self, running: Running) -> bool:
        """The last collective of a step: counts, losses, and whether somebody knows of a change."""
        runtime, plan = self.runtime, running.plan
        lanes = max(self.settings["logical_workers"], 1)
        vector = torch.zeros(3 + lanes, dtype=torch.float64, device=runtime.device)
        vector[0], vector[1], vector[2] = float(runtime.change_due()), running.counted, len(running.skipped)
        for lane, loss in running.losses.items():
            vector[3 + (lane if lanes > 1 else 0)] += loss
        if runtime.size > 1:
            self.parts().share_buffers(runtime.group, 0)
        runtime.group.sum(vector)
        runtime.group.settled()
        flag, counted, skipped, *losses = vector.tolist()
        if counted + skipped != plan.count:
            raise TrainError(
                f"Step {plan.step + 1} should have {plan.count} records, the workers counted "
                f"{counted:g} and skipped "
                f"{skipped:g}. This is a fault of Pliant: please report it."
            )
        self.loss = sum(losses) / counted if counted else None
        return bool(flag > 0)

    def _apply(self, running: Running) -> None:
        runtime, plan = self.runtime, running.plan
        runtime.step = plan.step + 1
        self.parts().apply(last_of_epoch=runtime.step % self.settings["steps_per_epoch"] == 0)
        self.running = None
        if runtime.line is not None:
            runtime.line.entered_step(runtime.step)
        if self._on_applied is not None:
            self._on_applied(runtime.step, [index for index in plan.ids if index not in running.skipped])
        now = time.monotonic()
        self._step_s.append(now - self._stepped)
        self._stepped = now
        if runtime.rank == 0:
            if self.keeper.is_due(runtime.step):
                self.keeper.write(self.parts(), self.settings, runtime.step, runtime.history)
            if now - self._reported >= REPORT_S:
                self.tell()

    def tell(self) -> None:
        """Send a report."""
        steps = sorted(self._step_s)
        body: dict[str, Any] = {"loss": self.loss, "report": dict(self.report)}
        if steps:
            body["step_ms"] = 1000 * steps[len(steps) // 2]
        self.runtime.report(body)
        self._step_s.clear()
        self._reported = time.monotonic()


class Step:
    """`with job.step(batch) as step: step.backward(loss)`. An error of the communicator ends the block
    silently: the loop goes on with the first micro-batch of the same step, for whoever is there then."""

    def __init__(self, loop: Loop, running: Running, batch: Batch) -> None:
        self._loop = loop
        self._running = running
        self._batch = batch
        self._scope: AbstractContextManager[None] | None = None

    def __enter__(self) -> "Step":
        part, running = self._batch.part, self._running
        running.backward = False
        if part.first:
            seed_all(random_seed(self._loop.settings["seed"], running.plan.step, part.lane))
        if not part.last:
            self._scope = self._loop.parts().model.accumulate()
            self._scope.__enter__()
        return self

    def backward(self, loss: torch.Tensor, *, reduction: str = "mean") -> None:
        """Add this micro-batch's gradients. `loss` is the mean over its records (or their sum:
        reduction="sum")."""
        if reduction not in ("mean", "sum"):
            raise BadSettings(f"reduction is 'mean' or 'sum', not {reduction!r}")
        if loss.dim() != 0:
            raise BadSettings(f"backward() takes one number, the loss has the shape {tuple(loss.shape)}")
        running, batch = self._running, self._batch
        own = len(batch.ids)
        records = batch.size if reduction == "mean" else 1
        total = loss * (records if own else 0)
        lane = batch.part.lane
        value = total.detach().to(torch.float64)
        running.losses[lane] = running.losses[lane] + value if lane in running.losses else value
        running.counted += own
        running.backward = True
        (total / running.plan.count).backward()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._scope is not None:
            self._scope.__exit__(None, None, None)
        if kind is None and not self._running.backward:
            raise BadSettings("A micro-batch went by without step.backward(loss)")
        if isinstance(error, GenerationOver) or (
            isinstance(error, RuntimeError) and self._loop.runtime.group.failed()
        ):
            self._loop.discard()
            return True
        if error is not None:
            return False
        return self._loop.part_done(self._batch.part)

"""The loop of global steps in one worker: meet, read, compute, sum, apply. A step is applied whole or not at
all."""

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from pliant.train.data.batches import owned, share
from pliant.train.data.rows import to_device
from pliant.train.errors import BadSettings, GenerationOver, TrainError
from pliant.train.rendezvous.runtime import Hooks, Runtime
from pliant.train.worker.agreement import Agreement
from pliant.train.worker.evaluate import Evaluation
from pliant.train.worker.reading import Reader
from pliant.train.worker.script import ScriptState
from pliant.train.worker.snapshot import Keeper
from pliant.train.worker.steps import Batch, Part, Places, Plan, Running, plan_step
from pliant.train.worker.trained import Trained

REPORT_S = 0.5


class Loop:
    """Owns the step being computed. The job's `prepare` and `data` set `trained`, `places` and `reader`."""

    def __init__(
        self,
        settings: dict[str, Any],
        runtime: Callable[[Hooks], Runtime],
        keeper: Keeper,
        on_applied: Callable[[int, Sequence[int]], None] | None,
    ) -> None:
        self.settings = settings
        self.keeper = keeper
        self.script = ScriptState()
        self._copied: dict[str, Any] = {}  # the script's values in the state loaded last
        self.trained: Trained | None = None
        self.reader: Reader | None = None
        self.places: Places | None = None
        self.evaluation: Evaluation | None = None
        self.running: Running | None = None
        self._begun: Agreement | None = None  # of the running step
        self.due: str | None = "join"  # why a meeting is due; None: none is due
        self.report: dict[str, Any] = {}
        self.checkpoint_wanted = False  # by the script
        self._checked = 0  # last step for which a checkpoint was written or not due
        self._on_applied = on_applied
        self._reported = self._stepped = time.monotonic()
        self._step_s: list[float] = []
        self.runtime = runtime(
            Hooks(
                self._collect, self._load, lambda: self.script.values, self._compare,
                self._restore, self._save, self._release, self._renew,
            )
        )  # fmt: skip

    @property
    def applied(self) -> int:
        """The number of global steps applied to the weights."""
        return max(self.runtime.step, 0)

    def parts(self) -> Trained:
        """The trained objects. Raises BadSettings before `prepare`."""
        if self.trained is None:
            raise BadSettings("Call prepare(model, optimizer) first")
        return self.trained

    # -- meetings --------------------------------------------------------------------------------------

    def gather(self) -> None:
        """Write the checkpoint that is due, enter the next generation if one is due, run the evaluation of
        this step if it is due."""
        self._checkpoint()
        met = False
        while True:
            if self.due is not None:
                why, self.due, met = self.due, None, True
                self.runtime.meet(why)
                self._checked = self.applied
                self._stepped = time.monotonic()
            if self.runtime.finished or self._evaluated(met):
                return
            self.due = "lost"

    def _evaluated(self, met: bool) -> bool:
        """Run the evaluation if one is due. False if the generation was lost meanwhile."""
        evaluation, step, known = self.evaluation, self.applied, self.script.evaluations
        each = self.settings["steps_per_epoch"]
        if evaluation is None or not evaluation.is_due(step, met, step in known, each):
            return True
        try:
            known[step] = evaluation.run(self.parts().model.module, self.runtime)
        except GenerationOver:
            return False
        self.report["evaluation"] = {"step": step, **known[step]}
        return True

    def _checkpoint(self) -> None:
        """Write the checkpoint if one is due, after the script's code for this step. Rank 0 writes."""
        trouble, step = self.keeper.trouble(), self.applied
        if self.runtime.rank == 0 and step > 0 and self.due in (None, "boundary"):
            due = step != self._checked and self.keeper.is_due(step)
            if due or self.checkpoint_wanted:
                earlier = self.keeper.write(self._collect(), self.settings, step, self.runtime.history)
                trouble = trouble or earlier
        self._checked, self.checkpoint_wanted = step, False
        if trouble is not None:
            self.runtime.warn(f"{trouble} The next checkpoint is tried as usual.")

    def end_of_epoch(self, epoch: int, each: int) -> None:
        """Note that the script's code for this epoch has ended."""
        if self.script.closed > epoch:  # this worker was behind and loaded a state from after that code
            self.script.values = copy.deepcopy(self._copied)
        elif self.applied >= (epoch + 1) * each:
            self.script.closed = epoch + 1

    def _collect(self) -> Any:
        return {**self.parts().state(), "script": self.script.state_dict()}

    def _load(self, state: Any) -> None:
        self.parts().load(state)
        if "script" in state:  # a checkpoint of an earlier version has none
            self.script.load_state_dict(state["script"])
            self._copied = copy.deepcopy(self.script.values)

    def _compare(self, others: dict[str, Any], theirs: str) -> None:
        for text in self.script.differences(others, theirs, self.runtime.worker):
            self.runtime.warn(text)
        self.script.values = copy.deepcopy(others)

    def _restore(self, step: int) -> tuple[int, str | None]:
        return self.keeper.restore(self._load, self.settings, step)

    def _save(self, why: str) -> None:
        final = why == "done"
        self.keeper.save(self._collect(), self.settings, self.applied, self.runtime.history, final=final)

    def _release(self) -> None:
        if self.trained is not None:
            self.trained.model.release()

    def _renew(self) -> None:
        self.parts().model.renew()

    # -- one step --------------------------------------------------------------------------------------

    def one_step(self) -> Iterator[Batch]:
        """Yields the micro-batches of the next step; after them the step is applied or discarded."""
        trained, plan = self.parts(), self._plan(self.applied)
        buffers = [buffer.detach().clone() for buffer in trained.buffers()]
        values = copy.deepcopy(self.script.values)
        self.running = running = Running(plan, buffers)
        for number, part in enumerate(plan.parts):
            if part.first and self.settings["logical_workers"]:
                trained.discard(buffers)  # each logical worker begins with the same buffers
            yield self._read(number, running)
            if self.running is not running:
                if not running.applied:
                    self.script.values = values  # undo what the script set during the discarded step
                return
        if not plan.parts:  # there are more real workers than logical ones
            self._finish(running)

    def part_done(self, part: Part) -> bool:
        """Call it after each micro-batch. True if the generation was lost."""
        running = self.running
        if running is None:
            return True
        if part.last and self.settings["logical_workers"]:
            self._keep_lane(running, part.lane)
        if part is running.plan.parts[-1]:
            return not self._finish(running)
        running.marks = self.parts().marks()
        return False

    def discard(self) -> None:
        """Discard the running step; the next generation redoes it."""
        if self.running is not None:
            self.parts().discard(self.running.buffers)
            self.running = self._begun = None
        self.due = "lost"

    def begin_agreement(self, running: Running) -> None:
        """Begin the agreement before the last backward pass, unless that pass can still change its values."""
        if not self.settings["logical_workers"] and not self.parts().precision.scaled:
            self._begun = self._agreement(running, overflow=False)

    def _agreement(self, running: Running, *, overflow: bool) -> Agreement:
        runtime, lanes = self.runtime, max(self.settings["logical_workers"], 1)
        return Agreement(
            runtime.group,
            self.parts(),
            running,
            lanes,
            change=runtime.change_due(),
            overflow=overflow,
            device=runtime.device,
        )

    def _plan(self, step: int) -> Plan:
        if self.places is None:
            raise BadSettings("Call data() first")
        if step >= self.settings["steps_total"]:
            raise IndexError(step)
        return plan_step(self.settings, self.places, step, self.runtime.rank, self.runtime.size)

    def _read(self, number: int, running: Running) -> Batch:
        runtime, reader, plan = self.runtime, self.reader, running.plan
        assert reader is not None, "there is a plan, so data() was called"
        part = plan.parts[number]
        value, good, bad = reader.read(plan, number, runtime.rank, runtime.size, self._plan)
        for index, error in bad.items():
            runtime.quarantine(plan.epoch, index, error, self.settings["max_skipped_records"])
            running.skipped |= set() if part.ghost else {index}
        own = () if part.ghost else tuple(good)
        if not good:  # any readable record, with weight 0: the collectives need a backward pass on every rank
            value, good = reader.any_record()
        return Batch(to_device(value, runtime.device), own, plan.step, part, len(good))

    def _keep_lane(self, running: Running, lane: int) -> None:
        trained = self.parts()
        running.gradients[lane] = trained.flat()
        if lane == 0:
            running.kept = [buffer.detach().clone() for buffer in trained.buffers()]
        trained.zero()

    def _finish(self, running: Running) -> bool:
        """Finish the sums and apply the step. False if the generation was lost before that."""
        try:
            if self.settings["logical_workers"]:
                self._sum_in_order(running)
            agreement, self._begun = self._begun, None
            if agreement is None:
                trained = self.parts()
                overflow = trained.precision.scaled and trained.unscale()
                agreement = self._agreement(running, overflow=overflow)
            outcome = agreement.outcome()
        except GenerationOver:
            self.discard()
            return False
        if outcome.counted + outcome.skipped != running.plan.count:
            raise TrainError(
                f"Step {running.plan.step + 1} should have {running.plan.count} records, the workers counted "
                f"{outcome.counted} and skipped {outcome.skipped}. This is a fault of Pliant: report it."
            )
        self.script.loss = outcome.loss
        self._apply(running, overflow=outcome.overflow)
        if outcome.change:
            self.due = "boundary"
        return True

    def _sum_in_order(self, running: Running) -> None:
        """Add the gradients of the logical workers in their order, no matter which worker computed them."""
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

    def _apply(self, running: Running, *, overflow: bool) -> None:
        runtime, plan = self.runtime, running.plan
        runtime.step = plan.step + 1
        last = runtime.step % self.settings["steps_per_epoch"] == 0
        self.parts().apply(last_of_epoch=last, overflow=overflow)
        self.running = None
        running.applied = True
        if runtime.line is not None:
            runtime.line.entered_step(runtime.step)
        if self._on_applied is not None:
            self._on_applied(runtime.step, [index for index in plan.ids if index not in running.skipped])
        now = time.monotonic()
        self._step_s.append(now - self._stepped)
        self._stepped = now
        if runtime.rank == 0 and now - self._reported >= REPORT_S:
            self.tell()

    def tell(self) -> None:
        """Send a report to the master."""
        steps = sorted(self._step_s)
        body: dict[str, Any] = {"loss": self.script.loss, "report": dict(self.report)}
        if steps:
            body["step_ms"] = 1000 * steps[len(steps) // 2]
        self.runtime.report(body)
        self._step_s.clear()
        self._reported = time.monotonic()

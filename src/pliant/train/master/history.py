"""The progress and speed of the job, as the master reports them to users and the scheduler."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from pliant.train.master.membership import Membership

LEDGER_EVERY = 50  # steps between two lines of progress in the ledger


@dataclass(slots=True)
class Progress:
    """Fed by the workers' reports; reads no clock."""

    step: int = 0
    world: int = 0
    written: int = 0  # the newest step in the ledger
    step_ms: dict[int, float] = field(default_factory=dict)  # by world size: running mean of ms per step
    losses: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=512))
    changes: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=512))  # (step, world)
    marks: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=32))  # (now, step)
    report: dict[str, Any] = field(default_factory=dict)

    def generation(self, _number: int, size: int, step: int) -> None:
        """From this step on the world has this size."""
        self.world, self.step = size, step
        self.written = min(self.written, step)
        self.changes.append((step, size))

    def advance(self, step: int, body: dict[str, Any], now: int) -> bool:
        """Take a worker's report. True if the step is to be written to the ledger."""
        if step > self.step:
            self.step = step
            self.marks.append((now, step))
        if body.get("loss") is not None:
            self.losses.append((step, float(body["loss"])))
        if body.get("step_ms") is not None:
            known = self.step_ms.get(self.world, float(body["step_ms"]))
            self.step_ms[self.world] = known + (float(body["step_ms"]) - known) / 4
        self.report |= body.get("report") or {}
        due = step - self.written >= LEDGER_EVERY or (not body and step > self.written)
        if due:
            self.written = step
        return due

    def replay(self, kind: str, body: dict[str, Any]) -> None:
        """Take over a `progress` or `restored` event of the ledger."""
        self.step = body["step"] if kind == "restored" else max(self.step, body["step"])
        self.written = self.step

    def status(self, settings: dict[str, Any]) -> dict[str, Any]:
        """The progress part of the answer to `status`."""
        batch, records = settings.get("global_batch", 0), settings.get("epoch_records", 0)
        each = settings.get("steps_per_epoch", 0)
        epoch = self.step // each if each else 0
        goodput = 0.0
        if len(self.marks) > 1 and self.marks[-1][0] > self.marks[0][0]:
            ms, steps = self.marks[-1][0] - self.marks[0][0], self.marks[-1][1] - self.marks[0][1]
            goodput = 1000 * batch * steps / ms
        return {
            "step": self.step,
            "steps_total": settings.get("steps_total"),
            "steps_per_epoch": each,
            "epoch": min(epoch, max(settings.get("epochs", 1) - 1, 0)),
            "epochs": settings.get("epochs"),
            "records": epoch * records + (self.step % each) * batch if each else 0,
            "step_ms_by_size": {str(size): round(ms, 3) for size, ms in sorted(self.step_ms.items())},
            "goodput_records_per_s": round(goodput, 3),
            "loss": self.losses[-1][1] if self.losses else None,
            "losses": [list(pair) for pair in self.losses],
            "changes": [{"step": step, "world": world} for step, world in self.changes],
            "report": self.report,
        }


def overview(members: Membership, stop: dict[str, Any] | None, now: int) -> dict[str, Any]:
    """The state of the job and of each worker."""
    ranks = {name: rank for rank, name in enumerate(members.generation.members if members.generation else ())}
    workers = [
        {
            "worker": w.name,
            "state": "leaving" if w.leaving and w.state == "member" else w.state,
            "rank": ranks.get(w.name) if w.state == "member" else None,
            "step": w.step,
            "pid": w.pid,
            "silent_ms": now - w.seen,
        }
        for w in members.workers.values()
    ]
    world = sum(w.state == "member" for w in members.workers.values())
    if stop is not None:
        state = "finished" if stop["ok"] else "failed"
    else:
        state = "training" if world else "waiting" if members.number == 0 else "parked"
    return {
        "state": state,
        "error": stop and stop["error"],
        "generation": members.number,
        "world": world,
        "workers": workers,
    }

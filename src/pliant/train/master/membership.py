"""The members of a job and the generations of its communicator: a state machine without I/O, threads, clock.

A generation is one fixed membership. It ends at a boundary, where all members meet after the same step, or
dies with one of its members. Then the remaining workers meet. The highest step that one of them has applied
counts: workers that are behind copy its state, and a step that none of them applied is redone.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

PRESENT = ("joining", "member")


@dataclass(frozen=True, slots=True)
class Times:
    """Timeouts, in ms."""

    silence: int = 10_000  # a worker without a sign of life is lost
    reconnect: int = 2_000  # a worker whose line is down is lost, while its generation lives
    broken: int = 50  # the same once its generation is dead
    adopt: int = 3_000  # a restarted master waits for the members it knows from the ledger
    join_window: int = 1_000  # a newcomer waits for others that were announced
    stall: int = 1_800_000  # members at the meeting wait for one that is alive and does not come
    start: int = 20_000  # a generation without old members waits for all announced workers


@dataclass(slots=True)
class Worker:
    """One worker process, by its name."""

    name: str
    host: str = ""
    pid: int = 0
    state: str = "expected"  # expected | joining | member | leaving | left | lost
    step: int = -1  # applied; -1: it has no state of the model
    ready: str = ""  # why it waits at the meeting; "" while it computes
    ready_at: int = 0
    seen: int = 0
    lines: int = 0  # open watch connections
    down_since: int | None = None  # no line since then; None also if there never was one
    restored: bool = False  # known from the ledger, not heard from since this master started
    leaving: bool = False
    register_by: int = 0  # expected: lost unless it has registered by then


@dataclass(frozen=True, slots=True)
class Generation:
    """One membership; ranks are places in `members`."""

    number: int
    members: tuple[str, ...]
    step: int  # the highest that a member has applied
    source: int  # rank of a member that has it
    sync: bool  # the source's state goes to all
    restore: bool  # no member has a state

    def body(self) -> dict[str, Any]:
        """The generation as sent to workers and as written to the ledger."""
        return {
            "generation": self.number,
            "members": list(self.members),
            "step": self.step,
            "source": self.source,
            "sync": self.sync,
            "restore": self.restore,
        }


@dataclass(slots=True)
class Membership:
    """`now` is a monotonic time in ms everywhere. After any call, `tick` applies what follows from it."""

    times: Times = field(default_factory=Times)
    min_workers: int = 1
    record: Callable[[Generation], None] = lambda _generation: None  # called before any worker learns of it
    workers: dict[str, Worker] = field(default_factory=dict)
    generation: Generation | None = None
    number: int = 0  # of the newest generation
    dead: int = 0  # generations up to this one are over
    boundary: bool = False  # members are to meet after their step
    verdicts: dict[str, dict[str, Any]] = field(default_factory=dict)  # answers not fetched yet
    saver: str | None = None  # worker that writes the last state
    closing: str = ""  # "done" or "leave": why the saver saves
    stopping: bool = False  # all workers are to leave

    # -- what is heard ---------------------------------------------------------------------------------

    def register(self, name: str, host: str, pid: int, step: int, generation: int, now: int) -> None:
        """A worker registers: a new one, or one that a new master finds again or that was dropped before."""
        worker = self.workers.setdefault(name, Worker(name))
        worker.host, worker.pid, worker.seen, worker.restored = host, pid, now, False
        if self._is_member(name) and generation == self.number and worker.state == "member":
            worker.step = max(worker.step, step)
            return
        if worker.state in ("lost", "left", "expected"):
            worker.leaving = self.stopping or (worker.state == "expected" and worker.leaving)
            worker.state, worker.ready = "joining", ""
        worker.step = step
        self.verdicts.pop(name, None)

    def known(self, name: str) -> bool:
        """True if the worker may call; otherwise it has to register again."""
        worker = self.workers.get(name)
        return worker is not None and worker.state in (*PRESENT, "leaving", "left")

    def seen(self, name: str, now: int) -> None:
        """Note a sign of life of the worker."""
        self.workers[name].seen = now
        self.workers[name].restored = False

    def line(self, name: str, up: bool, now: int) -> None:
        """A watch of the worker has begun, or its connection broke."""
        worker = self.workers[name]
        worker.lines += 1 if up else -1
        worker.down_since = None if worker.lines > 0 else now

    def applied(self, name: str, step: int) -> None:
        """The worker has applied this step."""
        self.workers[name].step = max(self.workers[name].step, step)

    def ready(self, name: str, why: str, step: int, generation: int, now: int, leaving: bool = False) -> None:
        """The worker has stopped computing and waits for what comes next."""
        worker = self.workers[name]
        if name in self.verdicts:
            return
        worker.step = step
        if not worker.ready:
            worker.ready_at = now
        if self._is_member(name) and generation < self.number and worker.state == "member":
            self.die()  # it never learned of the newest generation: the answer was lost
        worker.ready = why
        if leaving:
            self.leave([name])
        if why in ("lost", "failed-build") and generation == self.number and self._is_member(name):
            self.die()

    def expect(self, names: Iterable[str], left: int, now: int) -> None:
        """These workers are being started and are to register within `left` ms."""
        for name in names:
            worker = self.workers.setdefault(name, Worker(name))
            worker.seen, worker.register_by = now, now + left

    def leave(self, names: Iterable[str]) -> None:
        """These workers leave at the next boundary."""
        for name in names:
            worker = self.workers.get(name)
            if worker is None:
                continue
            if worker.state in ("expected", *PRESENT):  # an expected one leaves once it is ready
                worker.leaving = True

    def gone(self, name: str) -> None:
        """The worker's process has ended, or counts as lost."""
        worker = self.workers.get(name)
        if worker is None or worker.state in ("lost", "left"):
            return
        member = self._is_member(name) and worker.state == "member"
        worker.state = "left" if worker.state == "leaving" else "lost"
        worker.ready, worker.lines, worker.down_since = "", 0, None
        if member:
            self.die()
        if self.saver == name:
            self.saver = None

    def die(self) -> None:
        """The current generation is dead."""
        self.dead = self.number

    def saved(self, name: str) -> None:
        """The saver has written the last state of the model."""
        if self.saver == name:
            self._close(name)

    def _close(self, saver: str) -> None:
        self.saver = None
        what = {"what": "stop"} if self.closing == "done" else {"what": "leave"}
        for worker in self.workers.values():
            if worker.ready and (self.closing == "done" or worker.name == saver):
                self._release(worker, what)
        if self.closing == "leave":
            self.die()
            self.generation = None

    # -- what follows ----------------------------------------------------------------------------------

    def tick(self, now: int) -> None:
        """Find lost workers, ask for a boundary if one is due, form the next generation if all are ready."""
        for worker in list(self.workers.values()):
            if self._lost(worker, now):
                self.gone(worker.name)
        self.boundary = self._boundary_due(now)
        self._form(now)

    def verdict(self, name: str) -> dict[str, Any] | None:
        """Return once what a ready worker is to do; None: wait."""
        return self.verdicts.pop(name, None)

    def present(self) -> list[Worker]:
        """Members and newcomers."""
        return [worker for worker in self.workers.values() if worker.state in PRESENT]

    def _lost(self, worker: Worker, now: int) -> bool:
        if worker.state == "expected":
            return now > worker.register_by
        if worker.state not in (*PRESENT, "leaving"):
            return False
        patience = self.times.adopt if worker.restored else self.times.silence
        if now - worker.seen > patience:
            return True
        if worker.down_since is None:
            return False
        over = self.dead >= self.number and worker.state == "member" and not worker.ready
        return now - worker.down_since > (self.times.broken if over else self.times.reconnect)

    def _is_member(self, name: str) -> bool:
        return self.generation is not None and name in self.generation.members

    def _members(self) -> list[Worker]:
        names = self.generation.members if self.generation else ()
        return [self.workers[name] for name in names if self.workers[name].state == "member"]

    def _awaited(self) -> bool:
        """True if a worker was announced or has joined, and is not ready yet."""
        return any(
            not worker.leaving
            and (worker.state == "expected" or (worker.state == "joining" and not worker.ready))
            for worker in self.workers.values()
        )

    def _boundary_due(self, now: int) -> bool:
        if self.generation is None or self.dead >= self.number:
            return False
        if any(worker.ready for worker in self._members()):
            return True
        due = False
        for worker in self.workers.values():
            if worker.state == "member" and worker.leaving:
                due = True
            if worker.state == "joining" and worker.ready and not worker.leaving:
                due = due or not self._awaited() or now - worker.ready_at >= self.times.join_window
        return due

    def _form(self, now: int) -> None:
        if self.saver is not None:
            return
        members = self._members()
        newcomers = [w for w in self.workers.values() if w.state == "joining" and w.ready]
        for worker in [w for w in newcomers if w.leaving]:
            self._release(worker, {"what": "leave"})
            newcomers.remove(worker)
        if self.generation is not None and members:
            if not all(worker.ready for worker in members):
                self._give_up_stalled(members, now)
                return
        elif not newcomers or self._starting(newcomers, now):
            return
        if members and self._all_done(members):
            self._ask_to_save(members, "done")
            return
        staying = [worker for worker in members if not worker.leaving]
        if members and not staying and not newcomers:
            self._ask_to_save(members, "leave")
            return
        best = max(members, key=lambda w: (w.step, not w.leaving), default=None)
        if best is not None and best.leaving:  # only it has the newest state: it stays for one more step
            staying = [worker for worker in members if worker is best or not worker.leaving]
        for worker in members:
            if worker not in staying:
                self._release(worker, {"what": "leave"})
        self._next(staying, sorted(newcomers, key=lambda w: (-w.step if not members else 0, w.name)))

    def _give_up_stalled(self, members: list[Worker], now: int) -> None:
        first = min((worker.ready_at for worker in members if worker.ready), default=now)
        for worker in members:
            if not worker.ready and now - first > self.times.stall:
                self.gone(worker.name)

    def _starting(self, newcomers: list[Worker], now: int) -> bool:
        if len(newcomers) < self.min_workers:
            return True
        first = min(worker.ready_at for worker in newcomers)
        return self._awaited() and now - first < self.times.start

    def _all_done(self, members: list[Worker]) -> bool:
        return all(w.ready == "done" and w.step == members[0].step for w in members)

    def _ask_to_save(self, members: list[Worker], why: str) -> None:
        best = max(members, key=lambda worker: worker.step)
        for worker in members:
            if worker is not best and why == "leave":
                self._release(worker, {"what": "leave"})
        self.saver, self.closing = best.name, why
        self.verdicts[best.name] = {"what": "save", "why": why}

    def _release(self, worker: Worker, what: dict[str, Any]) -> None:
        self.verdicts[worker.name] = what
        worker.state, worker.ready = "leaving", ""

    def _next(self, members: list[Worker], newcomers: list[Worker]) -> None:
        """Form the next generation. Members keep their order and come first. Their newest state counts; only
        if there is no member does the newest state of a newcomer."""
        chosen = members + newcomers
        best = max(members or newcomers, key=lambda worker: worker.step)
        nobody = not members or best.step < 0  # the only holder may be lost before it has sent its state
        self.number += 1
        self.generation = Generation(
            self.number,
            tuple(worker.name for worker in chosen),
            max(best.step, 0),
            chosen.index(best),
            sync=nobody or any(worker in newcomers or worker.step != best.step for worker in chosen),
            restore=nobody,
        )
        self.record(self.generation)
        self.boundary = False
        for rank, worker in enumerate(chosen):
            self.verdicts[worker.name] = {"what": "train", "rank": rank, "size": len(chosen)}
            worker.state, worker.ready = "member", ""

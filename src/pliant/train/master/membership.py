"""Who is in the job, and the generations of its communicator: a state machine without I/O, threads or clock.

A generation is one fixed membership. It ends at a boundary, where all members meet after the same step, or
dies with one of them. Then the remaining workers meet; the highest step that one of them has applied counts,
who is behind copies it, and a step that none of them applied is redone.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

PRESENT = ("joining", "member")


@dataclass(frozen=True, slots=True)
class Times:
    """Patience, in ms."""

    silence: int = 10_000  # without a sign of life, a worker is lost
    reconnect: int = 2_000  # its line is down while nobody misses it
    broken: int = 50  # its line is down and its generation is dead
    adopt: int = 3_000  # a restarted master waits for the members that it knew
    join_window: int = 1_000  # a newcomer waits for others that are expected
    stall: int = 1_800_000  # others wait at the meeting for a member that is alive and does not come
    start: int = 20_000  # the first generation waits for everybody who was announced


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
    down_since: int | None = None  # no line since; None also where none was ever seen
    restored: bool = False  # known from the ledger, not heard of since this master began
    leaving: bool = False
    left_at: int = 0  # when its announced leave ends, 0 without one


@dataclass(frozen=True, slots=True)
class Generation:
    """One membership; ranks are places in `members`."""

    number: int
    members: tuple[str, ...]
    step: int  # applied by who knows most
    source: int  # rank of one who has it
    sync: bool  # the source's state goes to all
    restore: bool  # no member has a state

    def body(self) -> dict[str, Any]:
        """As it travels and as the ledger keeps it."""
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
    """`now` is a monotonic time in ms everywhere. After any call `tick` settles what follows from it."""

    times: Times = field(default_factory=Times)
    min_workers: int = 1
    record: Callable[[Generation], None] = lambda _generation: None  # before anybody learns of it
    workers: dict[str, Worker] = field(default_factory=dict)
    generation: Generation | None = None
    number: int = 0  # of the newest generation
    dead: int = 0  # generations up to this one are over
    boundary: bool = False  # members are to meet after their step
    verdicts: dict[str, dict[str, Any]] = field(default_factory=dict)  # answers that wait to be fetched
    saver: str | None = None  # who writes the last state
    closing: str = ""  # "done" or "leave": why the saver saves
    stopping: bool = False  # everybody leaves

    # -- what is heard ---------------------------------------------------------------------------------

    def register(self, name: str, host: str, pid: int, step: int, generation: int, now: int) -> None:
        """A worker is there: new, or one that is found again by a new master or after having been dropped."""
        worker = self.workers.setdefault(name, Worker(name))
        worker.host, worker.pid, worker.seen, worker.restored = host, pid, now, False
        if self._is_member(name) and generation == self.number and worker.state == "member":
            worker.step = max(worker.step, step)
            return
        if worker.state in ("lost", "left", "expected"):
            worker.leaving = self.stopping or (worker.state == "expected" and worker.leaving)
            worker.state, worker.ready, worker.left_at = "joining", "", 0
        worker.step = step
        self.verdicts.pop(name, None)

    def known(self, name: str) -> bool:
        """Whether it may ask anything; if not it has to register again."""
        worker = self.workers.get(name)
        return worker is not None and worker.state in (*PRESENT, "leaving", "left")

    def seen(self, name: str, now: int) -> None:
        """A sign of life."""
        self.workers[name].seen = now
        self.workers[name].restored = False

    def line(self, name: str, up: bool, now: int) -> None:
        """A watch of the worker has begun, or its connection broke."""
        worker = self.workers[name]
        worker.lines += 1 if up else -1
        worker.down_since = None if worker.lines > 0 else now

    def applied(self, name: str, step: int) -> None:
        """It has applied this step."""
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
            self.die()  # it never learned of the newest generation: the answer was lost on its way
        worker.ready = why
        if leaving:
            self.leave([name], now, self.times.silence)
        if why in ("lost", "failed-build") and generation == self.number and self._is_member(name):
            self.die()

    def expect(self, names: Iterable[str], left: int, now: int) -> None:
        """These are being started and will register within `left` ms."""
        for name in names:
            worker = self.workers.setdefault(name, Worker(name))
            worker.seen, worker.left_at = now, now + left

    def leave(self, names: Iterable[str], now: int, left: int) -> None:
        """These leave at the next boundary."""
        for name in names:
            worker = self.workers.get(name)
            if worker is None:
                continue
            if worker.state == "expected":
                worker.leaving = True  # it goes as soon as it has come
            elif worker.state in PRESENT and not worker.leaving:
                worker.leaving, worker.left_at = True, now + left

    def gone(self, name: str) -> None:
        """The process is no more."""
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
        """The generation of now is dead."""
        self.dead = self.number

    def saved(self, name: str) -> None:
        """The last state of the model is on disk."""
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
        """Find who is lost, ask for a boundary where one is due, and form the next generation if all are
        there."""
        for worker in list(self.workers.values()):
            if self._lost(worker, now):
                self.gone(worker.name)
        self.boundary = self._boundary_due(now)
        self._form(now)

    def verdict(self, name: str) -> dict[str, Any] | None:
        """What a ready worker is to do now, once; None: wait."""
        return self.verdicts.pop(name, None)

    def present(self) -> list[Worker]:
        """Members and newcomers."""
        return [worker for worker in self.workers.values() if worker.state in PRESENT]

    def _lost(self, worker: Worker, now: int) -> bool:
        if worker.state == "expected":
            return now > worker.left_at
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
        """Somebody was announced, or is there without being ready yet."""
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
        if best is not None and best.leaving:  # nobody else knows what it knows: it stays for one more step
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
        """Survivors keep their order and come first. Members know the truth; a newcomer's state counts only
        if there is no member, and then the newest one does."""
        chosen = members + newcomers
        best = max(members or newcomers, key=lambda worker: worker.step)
        nobody = not members or best.step < 0  # who was lost before it had sent its state has left none
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

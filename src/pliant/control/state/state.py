"""The loop's state in memory: the world and all other rows. It follows exactly what is recorded."""

from collections import Counter
from dataclasses import replace
from heapq import heappop, heappush

from pliant.control.decider.port import News
from pliant.control.ports import Remembered, Row, Saved
from pliant.control.state.access import AccessBook
from pliant.control.state.draft import Draft
from pliant.control.state.marks import Marks
from pliant.control.state.marks import restored as restored_marks
from pliant.control.state.setting import KEY, restored
from pliant.control.state.transitions import following, phase_changed, phase_of, rejoining
from pliant.model.asset import Asset
from pliant.model.event import EventKind
from pliant.model.hold import PASSING
from pliant.model.identity import (
    AccessKey,
    AccessRule,
    Allowance,
    Application,
    CustomRole,
    EndedSession,
    LoginSession,
    User,
)
from pliant.model.ledger import Disruptions, PastUse, Usage
from pliant.model.machine import Cluster, Node
from pliant.model.notice import MailServer, Notice, Subscription
from pliant.model.priority import PriorityClass
from pliant.model.progress import Progress
from pliant.model.reason import Reason
from pliant.model.workload import Attempt, AttemptId, Desired, Phase, Task, Workload
from pliant.sched.plan import Protection, QueueStanding
from pliant.sched.settings import Settings
from pliant.sched.verdicts import Verdicts
from pliant.sched.world.rows import of_world
from pliant.sched.world.state import World

SCHEDULER = "scheduler"
"""Value of `cancelled_by` if no user cancelled it: its dependency can never be met."""


LAST_QUEUE = "last-queue"
"""Setting that keeps `State.last_queue`."""

LAST_ROLE = "roles.last"
"""Setting that keeps `State.last_role`."""

UsageKey = tuple[str, str, str, str]
"""Day, user, project, pool."""


class State:
    """Belongs to the loop's thread."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._built_in = settings
        self._keep_finished = settings.keep_finished  # by which `expires` was computed
        self.world = World()
        self.cluster: Cluster | None = None
        self.attempts: dict[AttemptId, Attempt] = {}  # those not known to have ended
        self.reasons: dict[str, Reason] = {}  # workload id -> reason of the last decision about it
        self.verdicts = Verdicts()  # why workloads wait, by the last cycle
        self.standings: tuple[QueueStanding, ...] = ()  # of the last plan
        self.protections: tuple[Protection, ...] = ()  # likewise
        self.last_words: dict[str, str] = {}  # workload id -> how its last attempt ended
        self.progress: dict[str, Progress] = {}  # workload id -> what its job reported last
        self.priorities: dict[str, PriorityClass] = {}  # by name
        self.assets: dict[str, Asset] = {}  # by id
        self.access = AccessBook()
        self.usages: dict[UsageKey, Usage] = {}
        self.subscriptions: dict[str, Subscription] = {}  # by id
        self.notices: dict[str, Notice] = {}  # by id: those still to be sent
        self.mail_server: MailServer | None = None
        self.marks: dict[str, Marks] = {}  # by node name, also of absent nodes
        self.faults: list[str] = []  # rows that contradict the rest, as far as reported
        self.epoch = 0
        self.turns = 0  # cycles of the loop
        self.cycles = 0  # asks to the decider
        self.serial = 0  # of the newest workload
        self.last_role = 0  # highest id of a deleted role; none gets it again
        self.last_queue = 0  # highest id of a deleted department or project; none gets it again
        self.names: dict[str, Counter[str]] = {}  # project -> uses of each name by workloads and arrays
        self.touched: set[str] = set()  # workloads of which something changed in this cycle
        self._stale_phases: set[str] = set()  # of these, those whose phase was not renewed since
        self.running: set[str] = set()  # workloads whose phase is Running: their time limits are checked
        self.expires: dict[str, int] = {}  # ended workload -> when (ms) it is to be deleted
        self.expiring: list[tuple[int, str]] = []  # heap of (ms, id); void if `expires` differs
        self.waiting: set[str] = set()  # workloads with a hold that ends by itself
        self.told = False  # verdicts changed since the last publication, perhaps only in order or numbers
        self.vacated: set[tuple[AttemptId, str]] = set()  # devices that live attempts have just given up
        self.shaken: set[str] = set()  # nodes, also removed ones, that changed in this cycle
        self.news: list[News] = []  # changes to the world since the last ask
        self.rebuilt = True  # the next ask must carry the whole world
        self.moved = True  # tenancy, nodes, standings or other shared rows changed since the last publication
        self.reshaped = True  # of that, tenancy or machines: standings change more often

    def rebuild(self, saved: Saved) -> None:
        """Replace everything with the store's rows."""
        self.world = World()
        self.news, self.rebuilt = [], True
        for row in filter(of_world, saved.rows):
            self.world.put(row)
        self.names = {}
        for row in self.world.workloads.values():
            self._name(row, 1)
        self.cluster = saved.cluster
        self.attempts = {row.id: row for row in saved.of(Attempt)}
        self.settings = restored(self._built_in, saved.settings.get(KEY, ""))
        self.progress = {row.workload: row for row in saved.of(Progress)}
        self.priorities = {row.name: row for row in saved.of(PriorityClass)}
        self.assets = {row.id: row for row in saved.of(Asset)}
        self.access.restore(saved)
        self.usages = {usage_key(row): row for row in saved.of(Usage)}
        self.subscriptions = {row.id: row for row in saved.of(Subscription)}
        self.notices = {row.id: row for row in saved.of(Notice)}
        self.mail_server = next(iter(saved.of(MailServer)), None)
        self.marks = restored_marks(saved.settings)
        self.serial = max(self.serial, int(saved.settings.get("serial", "0")))
        self.last_role = max(self.last_role, int(saved.settings.get(LAST_ROLE, "0")))
        self.last_queue = max(self.last_queue, int(saved.settings.get(LAST_QUEUE, "0")))
        self.touched, self._stale_phases = set(self.world.workloads), set(self.world.workloads)
        self.running, self.expires, self.expiring = set(), {}, []
        for row in self.world.workloads.values():
            self._time(row, gone=False)
        self.waiting = {row.id for row in self.world.workloads.values() if _waiting(row)}
        self.shaken |= set(self.world.nodes)
        self.moved = self.reshaped = True

    def _time(self, row: Workload, *, gone: bool) -> None:
        """Bring `running` and `expires` up to date for a workload."""
        (self.running.add if not gone and row.phase is Phase.RUNNING else self.running.discard)(row.id)
        at = None if gone else self._expiry(row)
        if at is None:
            self.expires.pop(row.id, None)
        elif self.expires.get(row.id) != at:
            self.expires[row.id] = at
            heappush(self.expiring, (at, row.id))

    def _expiry(self, row: Workload) -> int | None:
        """When (ms) an ended workload is to be deleted; None: never."""
        ttl = row.ttl if row.ttl is not None else self._keep_finished or None
        if not row.phase.final or ttl is None or row.completed is None or row.desired is Desired.DELETED:
            return None
        return row.completed + ttl

    def expired(self, now: int) -> list[str]:
        """Ended workloads that are to be deleted now, in the order of their times; each is returned once."""
        if self._keep_finished != self.settings.keep_finished:  # it was set since the last call
            self._keep_finished = self.settings.keep_finished
            self.expires, self.expiring = {}, []
            for row in self.world.workloads.values():
                self._time(row, gone=False)
        found = []
        while self.expiring:
            at, identity = self.expiring[0]
            if (known := self.expires.get(identity)) == at and at > now:
                break
            heappop(self.expiring)
            if known == at:
                del self.expires[identity]
                found.append(identity)
        return found

    def published(self) -> None:
        """Clear the marks of what changed, once readers can see it."""
        self.touched.clear()
        self.told = False
        self.shaken.clear()
        self.moved = self.reshaped = False

    def put(self, draft: Draft, row: Row) -> None:
        """Record a row and remember it."""
        draft.put(row)
        self.note(row)

    def note(self, row: Row | Remembered, *, gone: bool = False) -> None:
        """Apply to memory a row that this cycle records or (`gone`) removes."""
        if isinstance(row, Task) and (known := self.world.tasks.get(row.key)) is not None:
            self._shake(known)
        if isinstance(row, Workload):
            if (before := self.world.workloads.get(row.id)) is not None:
                self._name(before, -1)
            if not gone:
                self._name(row, 1)
        if of_world(row):
            self.news.append(News(row, gone))
            (self.world.drop if gone else self.world.put)(row)
        match row:
            case Attempt():
                if gone or row.exit is not None:
                    self.attempts.pop(row.id, None)
                else:
                    self.attempts[row.id] = row
            case Workload():
                self.touched.add(row.id)
                self._stale_phases.add(row.id)
                self._time(row, gone=gone)
                (self.waiting.add if not gone and _waiting(row) else self.waiting.discard)(row.id)
            case Task():
                self.touched.add(row.workload)
                self._stale_phases.add(row.workload)
                self._shake(row)
            case Progress():
                self.progress[row.workload] = row
                self.touched.add(row.workload)
            case Cluster():
                self.cluster = row
                self.moved = True
            case PriorityClass():
                self.priorities.pop(row.name, None)
                if not gone:
                    self.priorities[row.name] = row
                self.moved = True
            case Asset():
                self.assets.pop(row.id, None)
                if not gone:
                    self.assets[row.id] = row
                self.moved = True
            case (
                User()
                | Application()
                | AccessKey()
                | AccessRule()
                | LoginSession()
                | Allowance()
                | CustomRole()
                | EndedSession()
            ):
                self.access.note(row, gone=gone)
            case Subscription():
                self.subscriptions.pop(row.id, None)
                if not gone:
                    self.subscriptions[row.id] = row
            case Notice():
                self.notices.pop(row.id, None)
                if not gone:
                    self.notices[row.id] = row
            case MailServer():
                self.mail_server = None if gone else row
            case Usage():
                self.usages.pop(usage_key(row), None)
                if not gone:
                    self.usages[usage_key(row)] = row
            case PastUse() | Disruptions() | Remembered():
                pass  # readers are not told of it
            case _:  # tenancy and machines: they affect all views
                self.shaken.update([row.name] if isinstance(row, Node) else self.world.nodes)
                self.moved = self.reshaped = True

    def _name(self, row: Workload, step: int) -> None:
        """Add `step` to the uses of its name and its array's; a workload that its owner deleted has none."""
        if row.desired is not Desired.DELETED:
            names = self.names.setdefault(row.project, Counter())
            for name in {row.name, row.element.name if row.element is not None else row.name}:
                names[name] += step
                if not names[name]:
                    del names[name]

    def _shake(self, task: Task) -> None:
        self.shaken.update(place.node for place in (task.claims, task.carries) if place is not None)

    def node(self, name: str) -> Node | None:
        state = self.world.nodes.get(name)
        return state.row if state is not None else None

    def renew_phases(self, draft: Draft) -> None:
        """Bring the phase of every workload with changed rows in line with its tasks."""
        unsettled, self._stale_phases = sorted(self._stale_phases), set()
        for identity in unsettled:
            workload = self.world.workloads.get(identity)
            if workload is None:
                continue
            tasks = self.world.tasks_of(identity)
            for task in (new := following(workload, tasks)):
                self.put(draft, task)
            tasks = [*tasks, *new]
            phase = phase_of(workload, tasks)
            for task in () if phase.final else rejoining(workload, tasks):
                self.put(draft, task)
            if phase is workload.phase:
                continue
            message = self.last_words.get(identity, "") if phase.final else ""
            if workload.cancelled_by not in ("", SCHEDULER) and phase.final:
                message = f"Cancelled by {workload.cancelled_by}."
            self.put(draft, phase_changed(workload, phase, draft.now, message))
            words = message or f"The workload is {phase.value.lower()}."
            if phase.final:
                kind = EventKind.COMPLETED if phase is Phase.COMPLETED else EventKind.FAILED
                draft.event(identity, kind, words, who="server")
                for task in tasks:
                    if task.claims is not None:
                        self.put(draft, replace(task, claims=None))
            elif phase in (Phase.RUNNING, Phase.STOPPED):
                kind = EventKind.RUNNING if phase is Phase.RUNNING else EventKind.STOPPED
                draft.event(identity, kind, words, who="server")

    def bury(self, draft: Draft) -> list[Workload]:
        """Remove and return the deleted workloads that have no live task."""
        gone = []
        for identity in sorted(self.touched):
            workload = self.world.workloads.get(identity)
            if workload is None or workload.desired is not Desired.DELETED:
                continue
            tasks = self.world.tasks_of(identity)
            if any(task.phase.live for task in tasks):
                continue
            for task in tasks:
                draft.drop(task)
                self.note(task, gone=True)
            self.note(workload, gone=True)
            draft.put(replace(workload, deleted=draft.now, phase_since=draft.now))
            draft.event(identity, EventKind.DELETED, f"{workload.name} is gone.", who="server")
            for memory in (self.reasons, self.last_words, self.progress):
                memory.pop(identity, None)
            gone.append(workload)
        return gone


def usage_key(row: Usage) -> UsageKey:
    return (row.day, row.user, row.project, row.pool)


def _waiting(row: Workload) -> bool:
    return row.held in PASSING and not row.phase.final and row.desired is not Desired.DELETED

"""Reads the ledgers of live tasks about once a second, and looks for processes that are in none of them."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pliant.control.fractions import Enforcement, PartUse, TaskUse
from pliant.devices import ledger
from pliant.devices.config import GpuConf
from pliant.model.quantity import format_bytes
from pliant.model.workload import AttemptId

log = logging.getLogger(__name__)

EVERY_SECONDS = 1.0
AT_MOST = 20  # the pause after a look is at least this many times its CPU time

OnCards = Callable[[], Mapping[str, Mapping[int, int]]]


@dataclass(frozen=True, slots=True)
class Watched:
    """A living task's shares, as they were handed out."""

    path: Path  # of gpu.conf
    conf: GpuConf
    enforcement: Enforcement
    claims: Mapping[str, int]  # bytes by GPU that the scheduler gave it; the limit beyond is lent
    usable: Mapping[str, int]  # bytes by GPU of its node to share; empty: not known, nothing is lent


class Observer:
    """One thread, begun with the first task. `uses` is replaced whole: any thread may read it."""

    def __init__(
        self,
        living: Callable[[], Mapping[AttemptId, Watched]],
        on_cards: OnCards,
        owner: Callable[[int], AttemptId | None],
        mend: Callable[[AttemptId], str],
        report: Callable[[AttemptId, str], None],
    ) -> None:
        """`on_cards`: bytes by pid by GPU, as drivers count them; `owner`: the attempt a process came from;
        `mend` restores a changed gpu.conf and returns what to report.
        """
        self.uses: Mapping[AttemptId, TaskUse] = {}
        self._living, self._on_cards, self._owner = living, on_cards, owner
        self._mend, self._report = mend, report
        self._before: dict[str, dict[int, int]] = {}  # by attempt and GPU: what observe() gave last
        self._outside: set[tuple[str, int]] = set()  # (gpu, pid) seen outside of all ledgers last time
        self._told: dict[AttemptId, str] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._wake, self._closed = threading.Event(), threading.Event()

    def begin(self) -> None:
        """Start the thread, or wake it: a task has shares now."""
        with self._lock:
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, name="pliant-gpu-look", daemon=True)
                self._thread.start()
        self._wake.set()

    def forget(self, attempt: AttemptId) -> None:
        self._told.pop(attempt, None)
        self._wake.set()

    def close(self) -> None:
        self._closed.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._closed.is_set():
            self._wake.clear()
            began = time.thread_time()
            try:
                self.look()
            except Exception:  # after a failed look the next one follows
                log.exception("the shares of GPUs could not be looked at")
            if self._living():
                self._closed.wait(max(EVERY_SECONDS, AT_MOST * (time.thread_time() - began)))
            else:
                self._wake.wait()

    def look(self) -> None:
        living = self._living()
        shared = {grant.uuid for watched in living.values() for grant in watched.conf.grants}
        seen = {uuid: rows for uuid, rows in self._on_cards().items() if uuid in shared} if living else {}
        found, inside = {}, set[int]()
        keys = {f"{attempt} {grant.uuid}" for attempt, it in living.items() for grant in it.conf.grants}
        self._before = {key: rows for key, rows in self._before.items() if key in keys}
        for attempt, watched in living.items():
            found[attempt], pids = self._one(attempt, watched, seen)
            inside |= pids
        for attempt, text in self._escaped(living, seen, inside).items():
            found[attempt] = replace(found[attempt], trouble=text)
        for attempt, use in found.items():
            if use.trouble and self._told.get(attempt) != use.trouble:
                self._report(attempt, use.trouble)
        self._told = {attempt: use.trouble for attempt, use in found.items()}
        self.uses = found

    def _one(
        self, attempt: AttemptId, watched: Watched, seen: Mapping[str, Mapping[int, int]]
    ) -> tuple[TaskUse, set[int]]:
        conf, trouble = watched.conf, ""
        try:
            uses = ledger.uses(conf.ledger, conf.workload)
            for grant in conf.grants:
                key = f"{attempt} {grant.uuid}"
                before = self._before.get(key, {})
                self._before[key] = ledger.observe(
                    conf.ledger, grant.uuid, dict(seen.get(grant.uuid, {})), before
                )
        except FileNotFoundError:
            uses, trouble = [], f"its ledger {conf.ledger} is gone: new programs get no GPU memory"
        except (ledger.LedgerError, OSError) as error:
            uses, trouble = [], f"its ledger is damaged, new programs get no GPU memory: {error}"
        parts = []
        for grant in conf.grants:
            column = grant.uuid.split("-", 1)[-1]
            has = [use.charged.get(column, 0) + use.extra.get(column, 0) for use in uses]
            users = sum(1 for amount in has if amount)
            parts.append(PartUse(grant.uuid, grant.limit, grant.request, sum(has), users))
        refused = sum(use.refused for use in uses)
        use = TaskUse(watched.enforcement, tuple(parts), refused, trouble or self._mend(attempt))
        return use, {use.pid for use in uses}

    def _escaped(
        self, living: Mapping[AttemptId, Watched], seen: Mapping[str, Mapping[int, int]], inside: set[int]
    ) -> dict[AttemptId, str]:
        """Texts by attempt about processes that use a shared GPU outside of all ledgers, in two looks in a
        row: one look may fall between a context and its entry."""
        outside = {(uuid, pid) for uuid, rows in seen.items() for pid in rows if pid not in inside}
        again, self._outside = outside & self._outside, outside
        texts: dict[AttemptId, list[str]] = {}
        for uuid, pid in sorted(again):
            attempt, name = self._owner(pid), _name(pid)
            line = f"process {pid} ({name}) uses {format_bytes(seen[uuid][pid])} of {uuid} outside of"
            if attempt is None and name:  # of no task: all tasks on this GPU lack what it uses
                sharers = [key for key, one in living.items() if uuid in (g.uuid for g in one.conf.grants)]
                for one in sharers:
                    texts.setdefault(one, []).append(f"{line} all shares: it is no task's")
            elif attempt is not None and attempt in living:
                texts.setdefault(attempt, []).append(f"{line} its share: it runs without the shim")
        return {attempt: "; ".join(lines) for attempt, lines in texts.items()}


def _name(pid: int) -> str:
    """The name of a process; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip() or "?"
    except OSError:
        return ""

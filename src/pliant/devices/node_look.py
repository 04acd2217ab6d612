"""What an agent sees of its node: what pods with parts of GPUs use, how busy the GPUs are, and which
processes use them without permission."""

import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pliant.control.fractions import PartUse
from pliant.control.ports import GpuLoad
from pliant.devices import ledger
from pliant.devices.kept import Kept, bound
from pliant.model.quantity import format_bytes

OVER_SECONDS = 10.0
"""Time for which a pod may be above its limit: it first has to give back what was lent to it."""

LEDGER, OVER, BYPASS, OUTSIDE = "GpuLedgerDamaged", "GpuShareOverLimit", "GpuShareBypassed", "GpuUsedOutside"
"""Reasons of events."""

_POD = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")


@dataclass(frozen=True, slots=True)
class Trouble:
    uid: str  # of the pod that it is about; empty: the node
    reason: str
    mark: str  # identifies the trouble from look to look
    text: str


@dataclass(frozen=True, slots=True)
class Used:
    parts: tuple[PartUse, ...]
    refused: int  # number of allocations beyond the limit, of live programs


@dataclass(frozen=True, slots=True)
class Look:
    pods: Mapping[str, Used] = field(default_factory=dict)  # by uid
    loads: Mapping[str, GpuLoad] = field(default_factory=dict)  # by GPU
    outside: Mapping[str, int] = field(default_factory=dict)  # count of processes outside of our pods, by GPU
    troubles: tuple[Trouble, ...] = ()


Stray = tuple[str, int, str]  # GPU, pid, uid of its pod
OnCards = Callable[[], Mapping[str, Mapping[int, int]]]


class Looker:
    def __init__(
        self,
        on_cards: OnCards,
        loads: Callable[[], Mapping[str, GpuLoad]],
        *,
        proc: Path | None = Path("/proc"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_cards`: bytes by pid by GPU, from the driver; `proc`: /proc with the node's own pids; None: not
        visible, so processes cannot be assigned to pods."""
        self._on_cards, self._loads, self._proc, self._clock = on_cards, loads, proc, clock
        self._above: dict[tuple[str, str], float] = {}  # (uid, GPU): since when it is above its limit
        self._before: dict[tuple[str, str], dict[int, int]] = {}  # what ledger.observe() gave last
        self._once: set[Stray] = set()  # seen outside of ledgers last time

    def look(self, kept: Mapping[str, Kept], ours: Collection[str]) -> Look:
        """`kept` by uid; `ours`: uids of all pods of the node that servers of ours started."""
        seen = self._on_cards() if self._proc is not None else {}
        owners = {pid: self._owner(pid) for rows in seen.values() for pid in rows}
        troubles: list[Trouble] = []
        inside: set[int] = set()
        pods = {}
        for uid, each in kept.items():
            mine = {self._own(pid): pid for pid, owner in owners.items() if owner == uid}
            pods[uid] = self._one(uid, each, seen, mine, inside, troubles)
        self._above = {key: at for key, at in self._above.items() if key[0] in kept}
        self._before = {key: rows for key, rows in self._before.items() if key[0] in kept}
        outside = self._audit(kept, ours, seen, owners, inside, troubles)
        return Look(pods, self._loads(), outside, tuple(troubles))

    def _one(
        self,
        uid: str,
        kept: Kept,
        seen: Mapping[str, Mapping[int, int]],
        mine: Mapping[int, int],
        inside: set[int],
        troubles: list[Trouble],
    ) -> Used:
        uses: list[ledger.ProcessUse] = []
        try:
            if bound(kept.ledger):
                troubles.append(Trouble(uid, LEDGER, "long", "its ledger was too long and was cut"))
            if kept.ledger.stat().st_size:  # empty: no program has used a GPU yet
                for grant in kept.conf.grants:
                    rows, key = dict(seen.get(grant.uuid, {})), (uid, grant.uuid)
                    before = self._before.get(key, {})
                    self._before[key] = ledger.observe(kept.ledger, grant.uuid, rows, before, dict(mine))
                uses = ledger.uses(kept.ledger, kept.conf.workload)
        except (ledger.LedgerError, OSError) as error:
            said = f"its ledger is damaged, new programs get no GPU memory: {error}"
            troubles.append(Trouble(uid, LEDGER, "damaged", said))
        inside |= {mine[use.pid] for use in uses if use.pid in mine}
        parts = []
        for grant in kept.conf.grants:
            column = grant.uuid.split("-", 1)[-1]
            has = [use.charged.get(column, 0) + use.extra.get(column, 0) for use in uses]
            part = PartUse(grant.uuid, grant.limit, grant.request, sum(has), sum(1 for one in has if one))
            parts.append(part)
            self._limit(uid, part, troubles)
        return Used(tuple(parts), sum(use.refused for use in uses))

    def _limit(self, uid: str, part: PartUse, troubles: list[Trouble]) -> None:
        key = (uid, part.gpu)
        if part.used <= part.limit:
            self._above.pop(key, None)
        elif self._clock() - self._above.setdefault(key, self._clock()) >= OVER_SECONDS:
            amounts = f"{format_bytes(part.used)} of {part.gpu}, its limit is {format_bytes(part.limit)}"
            troubles.append(Trouble(uid, OVER, part.gpu, f"it uses {amounts}"))

    def _audit(
        self,
        kept: Mapping[str, Kept],
        ours: Collection[str],
        seen: Mapping[str, Mapping[int, int]],
        owners: Mapping[int, str | None],
        inside: Collection[int],
        troubles: list[Trouble],
    ) -> dict[str, int]:
        """The number of processes outside of our pods, by GPU; adds troubles. Counts only what two looks in a
        row see: one look may fall between a context and its entry."""
        found: dict[Stray, int] = {}
        for gpu, rows in seen.items():
            for pid, amount in rows.items():
                owner = owners[pid]
                if owner is None or pid in inside or (owner in ours and owner not in kept):
                    continue
                found[gpu, pid, owner] = amount
        again = {key: found[key] for key in sorted(found.keys() & self._once)}
        self._once = set(found)
        count = dict.fromkeys(seen, 0)
        for (gpu, pid, owner), amount in again.items():
            what = f"process {pid} ({self._name(pid)}) uses {format_bytes(amount)} of {gpu}"
            if owner in kept:
                said = f"{what} outside of its share: it runs without the library"
                troubles.append(Trouble(owner, BYPASS, f"{gpu} {pid}", said))
                continue
            count[gpu] += 1
            of = f"it belongs to pod {owner}" if owner else "it belongs to no pod"
            troubles.append(Trouble("", OUTSIDE, f"{gpu} {pid}", f"{what} outside of all jobs: {of}"))
        return count

    def _owner(self, pid: int) -> str | None:
        """The uid of its pod; empty: of none; None: it has ended."""
        found = self._read(pid, "cgroup")
        match = _POD.search(found or "")
        return None if found is None else match[1].replace("_", "-") if match else ""

    def _own(self, pid: int) -> int:
        """Its pid in its own pid namespace."""
        for line in (self._read(pid, "status") or "").splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
        return pid

    def _name(self, pid: int) -> str:
        text = (self._read(pid, "comm") or "").strip()
        return "".join(letter if letter.isprintable() else "?" for letter in text) or "?"

    def _read(self, pid: int, name: str) -> str | None:
        assert self._proc is not None
        try:
            return (self._proc / str(pid) / name).read_text(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return None

"""Hands out shares of this machine's GPUs: config, ledger, turns, and on simulated nodes the drivers."""

import logging
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pliant.control.fractions import Enforcement, HandedOut, How, TaskUse
from pliant.devices import cards, config, ledger
from pliant.devices.cards import DRIVERS, Card, Cards
from pliant.devices.config import GRAIN, GpuConf, Grant, Policy
from pliant.devices.lending import shares_of
from pliant.devices.observer import Observer, Watched
from pliant.devices.place import Place
from pliant.devices.wrapper import write_tools
from pliant.model.machine import Node, Share
from pliant.model.order import Resize, Start
from pliant.model.quantity import GPU
from pliant.model.workload import AttemptId, Request, Workload

log = logging.getLogger(__name__)

SHIM = DRIVERS.parent / "libpliant-gpu.so"
LENT_SECONDS = 10.0  # for a task to give back memory that was lent to it
STOP_SECONDS = 60.0  # for a task that did not give it back to end
LEFT_SECONDS = 10.0  # for processes that still use a share after the end of their task

Seen = Callable[[], Mapping[str, Mapping[int, int]]]


class Handout:
    """See control.fractions.Fractions."""

    def __init__(
        self,
        place: Place,
        *,
        seen: Seen = dict,
        owner: Callable[[int], AttemptId | None] = lambda pid: None,
        report: Callable[[AttemptId, str], None] = lambda attempt, text: None,
        shim: Path = SHIM,
        drivers: Path = DRIVERS,
        lent_seconds: float = LENT_SECONDS,
    ) -> None:
        """`seen`: bytes by pid by real GPU, from NVML; `owner`: the attempt that a process came from;
        `report` adds a text to an attempt's history; `lent_seconds`: time for a task to return lent memory.
        """
        self._place, self._seen = place, seen
        self._shim, self._drivers = shim, drivers
        self._lent_seconds = lent_seconds
        self._report = report
        self.evict: Callable[[AttemptId], None] = lambda attempt: None
        self._lock = threading.Lock()
        self._writing = threading.Lock()  # held while a gpu.conf is replaced; never taken under _lock
        self._live: dict[AttemptId, Watched] = {}
        self._loose: dict[AttemptId, TaskUse] = {}  # tasks whose shares nothing enforces
        self.observer = Observer(self._living, self.on_cards, owner, self._mend, report)

    # ---- control.fractions.Fractions ----

    def hand_out(self, order: Start, node: Node, folder: Path, writable: str) -> HandedOut:
        shares, request = order.placement.shares, _request(order.workload, order.attempt)
        if not shares or not (node.simulated or request.shared):
            return HandedOut()
        drivers, why = self._simulate(node) if node.simulated else (HandedOut(), "")
        if why := self._missing(len(shares)) or why:
            loose = Enforcement(How.SCHEDULED, why)
            with self._lock:
                self._loose[order.attempt] = TaskUse(loose, ())
            return replace(drivers, enforcement=loose)
        confined = request.shared  # a whole simulated card is its task's alone: no limit to protect
        own = folder / "gpu"
        own.mkdir(mode=0o700, exist_ok=True)
        name = str(order.attempt)
        path = self._place.folder("ledgers") / self._ledger_name(order.attempt)
        _remove(path)  # of an earlier start that was not completed
        conf = GpuConf(name, path, self._grants(shares, request, node))
        config.write(own / "gpu.conf", conf, _usable(node))
        try:
            ledger.create(path, name)
        except OSError as error:
            raise OSError(f"no ledger for its share of a GPU in {path.parent}: {error.strerror}") from error
        enforcement = (
            Enforcement(How.COOPERATIVE, writable) if writable and confined else Enforcement(How.SHIM)
        )
        claims = {grant.uuid: grant.limit for grant in conf.grants}
        with self._lock:
            self._live[order.attempt] = Watched(own / "gpu.conf", conf, enforcement, claims, _usable(node))
        self.observer.begin()
        self._take_back(self._lend(set(claims)), order.workload.name)
        env = {**drivers.env, "PLIANT_GPU_CONF": str(own / "gpu.conf")}
        front = {**drivers.front, "LD_PRELOAD": str(self._shim)}
        return HandedOut(enforcement, env, front, own if confined and not writable else None)

    def adopt(self, attempt: AttemptId, folder: Path, enforcement: Enforcement, node: Node | None) -> None:
        path = folder / "gpu" / "gpu.conf"
        try:
            conf = config.parse(path.read_text())
        except FileNotFoundError:
            with self._lock:
                self._loose[attempt] = TaskUse(enforcement, ())
            return
        except (OSError, ValueError) as error:
            log.warning("%s of a running task cannot be read, its shares are not watched: %s", path, error)
            return
        with self._lock:
            claims = {grant.uuid: grant.request or grant.limit for grant in conf.grants}
            self._live[attempt] = Watched(path, conf, enforcement, claims, _usable(node) if node else {})
        self.observer.begin()

    def sweep(self) -> None:
        names = {self._ledger_name(attempt) for attempt in self._living()}
        for path in self._place.present("ledgers"):
            if path.name not in names:
                _remove(path)
        self._place.tidy()

    def resize(self, order: Resize, node: Node, *, keep: bool = False) -> None:
        with self._writing:
            watched = self._living().get(order.attempt)
            if watched is None:
                return
            before = {grant.uuid: grant for grant in watched.conf.grants}
            now = [self._resized(share, before) for share in order.placement.shares]
            named = {grant.uuid for grant in now}
            lost = [grant for grant in before.values() if grant.uuid not in named] if keep else []
            grants = (*now, *lost)[: config.MAX_GPUS]  # more whole simulated cards are left out
            conf = replace(watched.conf, grants=grants, epoch=watched.conf.epoch + 1)
            if conf.grants == watched.conf.grants:
                return
            config.write(watched.path, conf, _usable(node))
            with self._lock:
                if order.attempt in self._live:
                    claims = {grant.uuid: grant.limit for grant in conf.grants}
                    self._live[order.attempt] = replace(watched, conf=conf, claims=claims)
        self._lend({grant.uuid for grant in conf.grants})

    def _resized(self, share: Share, before: Mapping[str, Grant]) -> Grant:
        whole = share.portion == GPU
        limit = share.memory if whole or share.memory < GRAIN else share.memory // GRAIN * GRAIN
        if (old := before.get(share.gpu)) is None:
            turns = self._place.folder("turns")
            kin = next(iter(before.values()))
            old = replace(kin, uuid=share.gpu, share=turns / share.gpu.split("-", 1)[-1])
            old = replace(old, limit=limit, request=limit)
        if old.policy == "none" and not whole:
            limit = share.memory  # asked for in bytes
        return replace(old, limit=limit, request=min(old.request, limit))

    def fits(self, attempt: AttemptId) -> bool:
        watched = self._living().get(attempt)
        if watched is None:
            return True
        try:
            used = ledger.used(watched.conf.ledger)
        except (ledger.LedgerError, OSError):
            return False  # not known: it may use more
        return all(used.get(grant.uuid.split("-", 1)[-1], 0) <= grant.limit for grant in watched.conf.grants)

    def release(self, attempt: AttemptId) -> None:
        watched = self._living().get(attempt)
        if watched is not None:
            self._end_holders(attempt, watched.conf.ledger)
            _remove(watched.conf.ledger)
        with self._lock:
            self._live.pop(attempt, None)
            self._loose.pop(attempt, None)
        if watched is not None:
            self.observer.forget(attempt)
            self._lend({grant.uuid for grant in watched.conf.grants})

    def uses(self) -> Mapping[AttemptId, TaskUse]:
        with self._lock:
            return {**self.observer.uses, **self._loose}

    def close(self) -> None:
        self.observer.close()
        if not self._place.present("ledgers"):
            self._place.remove()

    # ---- steps ----

    def _living(self) -> dict[AttemptId, Watched]:
        with self._lock:
            return dict(self._live)

    def _mend(self, attempt: AttemptId) -> str:
        """Restores gpu.conf if it was changed or removed; returns what to report, '' for nothing."""
        with self._writing:
            watched = self._living().get(attempt)
            if watched is None:
                return ""
            path = watched.path
            try:
                if path.read_text(errors="replace") == config.render(watched.conf):
                    return ""
                what = "was changed"
            except OSError:
                what = "was taken away"
            try:
                config.restore(path, watched.conf)
            except OSError as error:
                return f"its {path.name} {what} by somebody and cannot be put back: {error}"
            return f"its {path.name} {what} by somebody and was put back"

    def _lend(self, gpus: Collection[str]) -> set[AttemptId]:
        """Sets new limits for the tasks on these GPUs, by their claims. Returns those whose limits fell."""
        lowered = set()
        with self._writing:
            living = self._living()
            for key, wanted in shares_of(living, gpus).items():
                watched = living[key]
                before = watched.conf.grants
                grants = tuple(replace(one, limit=wanted.get(one.uuid, one.limit)) for one in before)
                if grants == before:
                    continue
                if any(new.limit < old.limit for new, old in zip(grants, before, strict=True)):
                    lowered.add(key)
                conf = replace(watched.conf, grants=grants, epoch=watched.conf.epoch + 1)
                try:
                    config.restore(watched.path, conf)
                except OSError as error:
                    log.warning("the limits of %s stay as they were: %s", key, error)
                    continue
                with self._lock:
                    if key in self._live:
                        self._live[key] = replace(watched, conf=conf)
        return lowered

    def _take_back(self, lowered: set[AttemptId], owner: str) -> None:
        """Waits until these are within their limits. Those that are not after `lent_seconds` are evicted;
        STOP_SECONDS later it returns in any case."""
        waiting, stopped = threading.Event(), set[AttemptId]()
        deadline = time.monotonic() + self._lent_seconds
        while late := {key for key in lowered if key in self._living() and not self.fits(key)}:
            if time.monotonic() > deadline + STOP_SECONDS:
                log.error("%s starts although %s still keeps what was lent", owner, sorted(map(str, late)))
                return
            if time.monotonic() > deadline:
                for key in late - stopped:
                    stopped.add(key)
                    self._report(key, f"it keeps memory that was lent to it and that {owner} was given")
                    self.evict(key)
            waiting.wait(0.1)

    def _ledger_name(self, attempt: AttemptId) -> str:
        return f"{attempt.workload}.{attempt.task}.{attempt.number}"

    def _missing(self, devices: int) -> str:
        """Why no share can be enforced here; empty if it can."""
        if not self._shim.exists():
            return f"{self._shim.name} was not built: install a C compiler and install Pliant again"
        if set(str(self._shim)) & set(" \t:"):
            return f"{self._shim} has a space or a colon in its name, with which it cannot be preloaded"
        if devices > config.MAX_GPUS:
            return f"a task can have enforced shares of {config.MAX_GPUS} GPUs, this one has {devices}"
        return ""

    def _grants(self, shares: tuple[Share, ...], request: Request, node: Node) -> tuple[Grant, ...]:
        memory = _usable(node)
        policy: Policy = "fair" if request.shared and not request.gpu_memory else "none"
        turns = self._place.folder("turns")
        found = []
        for share in shares:
            if share.gpu not in memory:
                raise ValueError(f"{share.gpu}: node {node.name} has no such GPU")
            whole = share.portion == GPU and not request.shared
            exact = whole or bool(request.gpu_memory)
            limit = share.memory if exact else share.memory // GRAIN * GRAIN
            asked = request.gpu_memory or config.portion_bytes(memory[share.gpu], request.portion)
            most = request.gpu_memory_limit or config.portion_bytes(memory[share.gpu], request.portion_limit)
            most = min(most, memory[share.gpu]) if request.shared and most > limit else 0
            weight = max(1, min(1000, share.portion))
            place = turns / share.gpu.split("-", 1)[-1]
            found.append(Grant(share.gpu, limit, min(asked, limit), weight, policy, share=place, most=most))
        return tuple(found)

    def _simulate(self, node: Node) -> tuple[HandedOut, str]:
        """The drivers of a simulated node, or why there are none."""
        if not (self._drivers / "libcuda.so.1").exists():
            why = "the simulated drivers were not built: install a C compiler and install Pliant again"
            return HandedOut(), why
        if len(node.gpus) > cards.MAX_GPUS:
            return HandedOut(), f"the simulated driver knows {cards.MAX_GPUS} cards, not {len(node.gpus)}"
        with self._lock:  # two starts at once would use the same temporary files
            path = self._cards(node)
            programs, libraries = write_tools(self._place.folder("tools"), self._drivers)
        front = {"LD_LIBRARY_PATH": str(libraries), "PATH": str(programs)}
        return HandedOut(None, {"PLIANT_SIM_CARDS": str(path)}, front), ""

    def _cards(self, node: Node) -> Path:
        path = self._place.folder("cards") / node.name
        wanted = [(gpu.uuid, gpu.memory) for gpu in node.gpus]
        with suppress(OSError, ValueError):
            file = Cards(path)
            try:
                if [(card.uuid, card.total) for card in file.cards()] == wanted:
                    return path
            finally:
                file.close()
        cards.create(path, [Card(gpu.uuid, gpu.model, gpu.memory) for gpu in node.gpus])
        return path

    def on_cards(self) -> dict[str, Mapping[int, int]]:
        """Bytes by pid by GPU, as the drivers count them."""
        found: dict[str, Mapping[int, int]] = dict(self._seen())
        for path in self._place.present("cards"):
            with suppress(OSError, ValueError):
                file = Cards(path)
                try:
                    found.update(file.processes())
                finally:
                    file.close()
        return found

    def _end_holders(self, attempt: AttemptId, path: Path) -> None:
        """Kills the processes that hold slots of an ended task's ledger; the share is free when none does."""
        waited = threading.Event()
        for _ in range(int(LEFT_SECONDS / 0.1)):
            try:
                if not ledger.alive(path):
                    return
            except (ledger.LedgerError, OSError):
                return  # the lock bytes are in it: without it there is nothing to wait for
            for pid in _mapping(path):
                log.warning("process %d still held a share of %s: it is ended", pid, attempt)
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            waited.wait(0.1)
        log.error("the share of %s is handed on although a process still holds it", attempt)


def _request(workload: Workload, attempt: AttemptId) -> Request:
    return workload.group(attempt.task.rpartition("-")[0]).request


def _usable(node: Node) -> dict[str, int]:
    return {gpu.uuid: gpu.memory for gpu in node.gpus}


def _remove(path: Path) -> None:
    """Removes a file, or what a task has put in its place; never raises, so that the end is reported."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        shutil.rmtree(path, ignore_errors=True)


def _mapping(path: Path) -> list[int]:
    """Pids of the processes that map that file, by /proc: no process can hide that."""
    wanted = ([str(path)], [f"{path} (deleted)"])
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with suppress(OSError):
                lines = Path(f"/proc/{name}/maps").read_text(errors="replace").split("\n")
                if any(line.split(maxsplit=5)[5:] in wanted for line in lines):
                    found.append(int(name))
    return found

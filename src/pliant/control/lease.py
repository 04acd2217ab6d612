"""Decides which of two servers that share a store leads: the leader renews a lease, the other one watches.

The store counts the leader's renewals; clocks of different machines are never compared. A server that was
replaced learns of it from its next transaction or renewal, whichever comes first.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pliant.control.ports import StaleEpoch

log = logging.getLogger(__name__)

LEASE = 1.5
"""Seconds without a renewal after which another server takes the lead, unless `up --lease` says otherwise."""

RENEWALS = 4
"""Renewals of a leader per lease."""

LOOKS = 8
"""Looks per lease, of a standby server and of the leader's second thread."""

SILENCE = 3
"""Leases after which the leader gives up if the store has not answered a renewal."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the store knows about the leader."""

    epoch: int
    renewed: int  # grows as long as it lives
    revision: int  # grows with every transaction that it commits


class Leadership(Protocol):
    """The part of a store through which servers agree on the leader. Safe to call from any thread."""

    def seen(self) -> Seen: ...

    def renew(self, epoch: int) -> None:
        """Renew the lease. Raises StaleEpoch."""

    def claim(self, seen: Seen) -> int | None:
        """Take the lead and return the next epoch, if the leader has not renewed since `seen`; else None."""


class Vigil:
    """Detects that a leader has been silent for a lease, by the watcher's own clock and looks.

    A pause of the watcher itself counts as half a lease at most: if the whole machine stood still, the leader
    has the other half to renew.
    """

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._last: tuple[int, int] | None = None
        self._at = 0.0
        self._silent = 0.0

    def look(self, seen: Seen, now: float) -> bool:
        """True if it is time to claim the lead; `now` in seconds of a monotonic clock."""
        mark = (seen.epoch, seen.renewed)
        if mark == self._last:
            self._silent += min(now - self._at, self._lease / 2)
        else:
            self._last, self._silent = mark, 0.0
        self._at = now
        return self._silent >= self._lease

    def blind(self) -> None:
        """The store did not answer, so the leader may have renewed: start over."""
        self._last = None


class Renewal:
    """Renews the lease of a leader on a thread of its own, and calls `over` when its lead is over."""

    def __init__(
        self,
        store: Leadership,
        epoch: int,
        lease: float,
        over: Callable[[BaseException], None],
        obeyed: Callable[[], int] = lambda: 0,
    ) -> None:
        """`obeyed`: the epoch below which executors refuse orders. From it a leader learns that it was
        replaced even while the store does not answer.
        """
        self._store, self._epoch, self._lease, self._over = store, epoch, lease, over
        self._obeyed = obeyed
        self._closing = threading.Event()
        self._waiting = 0  # looks of the second thread since the store was asked; -1: it is not asked
        self._tried = time.monotonic()
        self._failed = ""
        self._threads = [
            threading.Thread(target=run, name=name, daemon=True)
            for run, name in ((self._renew, "pliant-lease"), (self._watch, "pliant-lease-watch"))
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._closing.set()

    @property
    def doubtful(self) -> bool:
        """True if the last try to renew is over a lease ago: another server may lead, so do not answer."""
        return time.monotonic() - self._tried > self._lease

    @property
    def trouble(self) -> str:
        """What is wrong with the store, for people; empty if nothing is."""
        return self._failed

    def _renew(self) -> None:
        while not self._closing.wait(self._lease / RENEWALS):
            self._waiting = 0
            try:
                self._store.renew(self._epoch)
            except StaleEpoch as error:
                self._over(error)
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, the next one may succeed
                if not self._failed:
                    log.error("the lease could not be renewed: %s", error)
                self._failed = f"The database does not answer: {error}. Running tasks continue."
            else:
                self._failed = ""
            self._waiting = -1
            self._tried = time.monotonic()

    def _watch(self) -> None:
        """End the lead if a renewal never returns. It counts looks, so a pause of the machine adds none."""
        self._waiting = -1
        while not self._closing.wait(self._lease / LOOKS):
            if (leads := self._obeyed()) > self._epoch:
                self._over(StaleEpoch(f"epoch {self._epoch} is over: epoch {leads} leads now"))
                return
            if self._waiting >= 0:
                self._waiting += 1
            if self._waiting > SILENCE * LOOKS:
                self._over(StaleEpoch(f"the store has not answered for {SILENCE * self._lease:.0f} s"))
                return

"""The thread that sends notices: one message for all that is pending for an address, retried for 2 days."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pliant.control.errors import Refused
from pliant.control.usecases.notices import Notices
from pliant.model.notice import MAIL, WEBHOOK, Notice, Subscription
from pliant.notices import mail, webhook

log = logging.getLogger(__name__)

LOOK = 5.0
"""Seconds between two looks; notices that arrive in between go into one message."""

GENTLE = 60.0
"""Least seconds between two messages to one address."""

FIRST, LONGEST = 10.0, 900.0
"""Seconds until the next try after a failure: the first and the longest wait; each failure doubles it."""

GIVEN_UP = 2 * 24 * 3600 * 1000
"""Ms after which a notice that could not be sent is dropped."""

Deliver = Callable[[Subscription, Sequence[Notice]], None]
"""Raises OSError, with the cause for people."""


@dataclass(slots=True)
class _Address:
    due: float = 0.0
    wait: float = FIRST


class Sender:
    def __init__(
        self,
        notices: Notices,
        now: Callable[[], int],
        by: Mapping[str, Deliver] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`now`: ms since the epoch; `by`: how each kind is delivered."""
        self._notices = notices
        self._now = now
        self._clock = clock
        own: Mapping[str, Deliver] = {
            MAIL: lambda to, rows: mail.deliver(notices.mail_server(), to.address, rows),
            WEBHOOK: lambda to, rows: webhook.deliver(to.address, rows),
        }
        self._by = by or own
        self._addresses: dict[str, _Address] = {}

    def start(self) -> None:
        threading.Thread(target=self._run, name="pliant-notices", daemon=True).start()

    def _run(self) -> None:
        while True:
            time.sleep(LOOK)
            try:
                self.look()
            except Refused as error:
                log.error("notices could not be told: %s", error)

    def look(self) -> None:
        """Send the notices that are due."""
        waiting: dict[str, list[Notice]] = {}
        for row in self._notices.pending():
            waiting.setdefault(row.subscription, []).append(row)
        known = {row.id: row for row in self._notices.subscriptions()} if waiting else {}
        for gone in [it for it in self._addresses if it not in known]:
            if waiting:
                del self._addresses[gone]
        for identity, rows in waiting.items():
            to = known.get(identity)
            if to is None:
                self._notices.told(rows)
                continue
            address = self._addresses.setdefault(identity, _Address())
            if self._clock() >= address.due:
                self._tell(to, rows, address)

    def _tell(self, to: Subscription, rows: Sequence[Notice], address: _Address) -> None:
        old = [row for row in rows if row.at < self._now() - GIVEN_UP]
        if old:
            log.error("%d notices to %s %s were not told for 2 days: given up", len(old), to.kind, to.id)
            self._notices.told(old)
        rows = [row for row in rows if row not in old]
        if not rows:
            return
        try:
            self._by[to.kind](to, rows)
        except OSError as error:
            address.due = self._clock() + address.wait
            log.warning(
                "%d notices to %s %s were not told: %s; tried again in %d s",
                len(rows), to.kind, to.id, error, address.wait,
            )  # fmt: skip
            address.wait = min(LONGEST, 2 * address.wait)
            return
        address.wait, address.due = FIRST, self._clock() + GENTLE
        self._notices.told(rows)

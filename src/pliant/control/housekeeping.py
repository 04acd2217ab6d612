"""What a server measures, forgets and removes from time to time, on threads of its own."""

import logging
import threading
import time
from collections.abc import Callable

from pliant.control.errors import Refused
from pliant.control.ports import StaleEpoch, Store
from pliant.control.service import Service
from pliant.model.sample import MINUTE

log = logging.getLogger(__name__)

Failed = Callable[[str, Exception], None]
"""Told what was not done, and why."""

TIDY_SECONDS = 60
"""Between two looks at the trash and at how full its disk is."""


def keep_house(service: Service, store: Store, closing: Callable[[], bool]) -> None:
    """Start it. While the server is closing, its store may be closed: what fails then is not told."""

    def failed(what: str, error: Exception) -> None:
        if not closing():
            log.error("%s: %s", what, error)

    threading.Thread(target=_prune, args=(service, store, failed), name="pliant-prune", daemon=True).start()
    threading.Thread(target=_tidy, args=(service, failed), name="pliant-trash", daemon=True).start()
    threading.Thread(target=_measure, args=(service, failed), name="pliant-measure", daemon=True).start()


def _prune(service: Service, store: Store, failed: Failed) -> None:
    """Forget what is too old, once a day."""
    while True:
        try:
            kept = service.board.settings
            store.prune(service.now() - kept.keep_history)
            store.prune_audit(service.now() - kept.keep_audit)
            service.usages.forget()
        except Exception as error:  # noqa: BLE001 - whatever ails the store, tomorrow it may be better
            failed("old history could not be pruned", error)
        time.sleep(24 * 3600)


def _tidy(service: Service, failed: Failed) -> None:
    """Remove files of deleted workloads that were kept for long enough."""
    while True:
        try:
            service.files.tidy()
        except (OSError, Refused) as error:
            failed("the trash could not be tidied", error)
        time.sleep(TIDY_SECONDS)


def _measure(service: Service, failed: Failed) -> None:
    """Measure at each full minute."""
    while True:
        time.sleep((MINUTE - service.now() % MINUTE) / 1000)
        try:
            service.measure()
        except StaleEpoch:
            return  # another server leads and measures
        except Exception as error:  # noqa: BLE001 - whatever ails the store or an engine, the next minute comes
            failed("nothing was measured this minute", error)

"""Measures, prunes old history and empties the trash from time to time, on threads of its own."""

import logging
import threading
import time

from pliant.control.errors import Refused
from pliant.control.ports import StaleEpoch, Store, StoreClosed
from pliant.control.service import Service
from pliant.model.sample import MINUTE

log = logging.getLogger(__name__)

TIDY_SECONDS = 60
"""Seconds between two looks at the trash and at the free space of its disk."""


def keep_house(service: Service, store: Store) -> None:
    """Start the threads."""
    threading.Thread(target=_prune, args=(service, store), name="pliant-prune", daemon=True).start()
    threading.Thread(target=_tidy, args=(service,), name="pliant-trash", daemon=True).start()
    threading.Thread(target=_measure, args=(service,), name="pliant-measure", daemon=True).start()


def _prune(service: Service, store: Store) -> None:
    """Delete what is too old, once a day."""
    while True:
        try:
            kept = service.board.settings
            store.prune(service.now() - kept.keep_history)
            store.prune_audit(service.now() - kept.keep_audit)
            service.usages.forget()
            service.logouts.forget()
        except StoreClosed:
            return
        except Exception as error:  # noqa: BLE001 - whatever failed, tomorrow's run may succeed
            log.error("old history could not be pruned: %s", error)
        time.sleep(24 * 3600)


def _tidy(service: Service) -> None:
    """Remove files of deleted workloads that were kept long enough."""
    while True:
        try:
            service.files.tidy()
        except (OSError, Refused) as error:
            log.error("the trash could not be tidied: %s", error)
        time.sleep(TIDY_SECONDS)


def _measure(service: Service) -> None:
    """Measure at each full minute."""
    while True:
        time.sleep((MINUTE - service.now() % MINUTE) / 1000)
        try:
            service.measure()
        except (StaleEpoch, StoreClosed):
            return  # another server leads and measures, or this one ends
        except Exception as error:  # noqa: BLE001 - whatever failed, the next minute may succeed
            log.error("nothing was measured this minute: %s", error)

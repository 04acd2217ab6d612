"""What a server measures, forgets and removes from time to time, on threads of its own."""

import logging
import threading
import time

from pliant.control.errors import Refused
from pliant.control.ports import StaleEpoch, Store
from pliant.control.service import Service
from pliant.model.sample import MINUTE

log = logging.getLogger(__name__)

TIDY_SECONDS = 60
"""Between two looks at the trash and at how full its disk is."""


SAMPLE_SECONDS = 60
"""Between two looks at how busy the GPUs are."""


def keep_house(service: Service, store: Store) -> None:
    """Start it."""
    threading.Thread(target=_sample, args=(service,), name="pliant-usage", daemon=True).start()
    threading.Thread(target=_prune, args=(service, store), name="pliant-prune", daemon=True).start()
    threading.Thread(target=_tidy, args=(service,), name="pliant-trash", daemon=True).start()
    threading.Thread(target=_measure, args=(service,), name="pliant-measure", daemon=True).start()


def _prune(service: Service, store: Store) -> None:
    """Forget what is too old, once a day."""
    while True:
        try:
            kept = service.board.settings
            store.prune(service.now() - kept.keep_history)
            store.prune_audit(service.now() - kept.keep_audit)
            service.usages.forget()
        except Exception as error:  # noqa: BLE001 - whatever ails the store, tomorrow it may be better
            log.error("old history could not be pruned: %s", error)
        time.sleep(24 * 3600)


def _tidy(service: Service) -> None:
    """Remove files of deleted workloads that were kept for long enough."""
    while True:
        try:
            service.files.tidy()
        except (OSError, Refused) as error:
            log.error("the trash could not be tidied: %s", error)
        time.sleep(TIDY_SECONDS)


def _sample(service: Service) -> None:
    """Note how busy the GPUs are on which something runs; where no driver tells, there is nothing to note."""
    while True:
        time.sleep(SAMPLE_SECONDS)
        try:
            busy = {uuid: load.busy for uuid, load in service.load().gpus.items()}
            if busy:
                service.usages.sample(busy, SAMPLE_SECONDS * 1000)
        except Exception as error:  # noqa: BLE001 - what ails the driver or the store now may be over in a minute
            log.error("it could not be noted how busy the GPUs are: %s", error)


def _measure(service: Service) -> None:
    """Take a sample of everything at each full minute."""
    while True:
        time.sleep((MINUTE - service.now() % MINUTE) / 1000)
        try:
            service.series.take()
        except StaleEpoch:
            return  # another server leads and measures
        except Exception as error:  # noqa: BLE001 - whatever ails the store or an engine, the next minute comes
            log.error("nothing was measured this minute: %s", error)

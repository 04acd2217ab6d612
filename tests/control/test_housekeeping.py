"""What is logged when the server cannot measure itself or delete old rows."""

import logging
import threading
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from pliant.control.housekeeping import keep_house
from pliant.model.sample import MINUTE
from pliant.store.errors import Closed, StoreError
from tests.house.waiting import until


class Measured:
    """A server at the end of a minute; each measurement raises the next of `failures`."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = [*failures]
        self.board = SimpleNamespace(settings=SimpleNamespace(keep_history=0, keep_audit=0))
        self.usages = self.logouts = SimpleNamespace(forget=lambda: None)
        self.files = SimpleNamespace(tidy=lambda: None)

    def now(self) -> int:
        return MINUTE - 1

    def measure(self) -> None:
        raise self.failures.pop(0)


def test_it_tries_again_after_a_failure_and_ends_with_the_store(caplog: pytest.LogCaptureFixture) -> None:
    service = Measured(StoreError("busy"), Closed("closed"), StoreError("too late"))
    store = SimpleNamespace(prune=Mock(side_effect=Closed("closed")))
    before = {*threading.enumerate()}
    with caplog.at_level(logging.ERROR):
        keep_house(cast("Any", service), cast("Any", store))
        until(lambda: {it.name for it in {*threading.enumerate()} - before} <= {"pliant-trash"}, "they end")
    assert len(service.failures) == 1
    said = [it.message for it in caplog.records if it.name == "pliant.control.housekeeping"]
    assert said == ["nothing was measured this minute: busy"]

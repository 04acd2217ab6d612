"""What is told when the server could not measure itself."""

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pliant.control.housekeeping import keep_house
from pliant.control.ports import StaleEpoch
from pliant.model.sample import MINUTE
from tests.house.waiting import until


class Measured:
    """A server at the end of a minute, whose store is closed."""

    def __init__(self) -> None:
        self.tries = 0
        self.board = SimpleNamespace(settings=SimpleNamespace(keep_history=0, keep_audit=0))
        self.usages = SimpleNamespace(forget=lambda: None)
        self.files = SimpleNamespace(tidy=lambda: None)

    def now(self) -> int:
        return MINUTE - 1

    def measure(self) -> None:
        self.tries += 1
        if self.tries > 2:
            raise StaleEpoch  # the end of its thread
        raise RuntimeError("the store is closed")


@pytest.mark.parametrize("closing", [False, True])
def test_what_fails_is_told_unless_the_server_is_closing(
    caplog: pytest.LogCaptureFixture, closing: bool
) -> None:
    service, store = Measured(), SimpleNamespace(prune=lambda at: None, prune_audit=lambda at: None)
    with caplog.at_level(logging.ERROR):
        keep_house(cast("Any", service), cast("Any", store), lambda: closing)
        until(lambda: service.tries > 2, "it is tried again after it failed")
    assert ("nothing was measured this minute: the store is closed" in caplog.text) is not closing

"""Questions beside the loop: what they say, what they cannot do, and how many at once."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from pliant.control.errors import NotFound, Unavailable
from pliant.control.explain import aside as room
from pliant.control.explain.aside import aside
from tests.control.stage import Stage


@pytest.fixture
def loop(tmp_path):
    stage = Stage(tmp_path)
    yield stage.loop
    stage.store.close()


def test_the_answer_is_about_a_copy(loop):
    def work(state):
        state.world.workloads.clear()
        state.cycles += 1000
        return len(state.world.nodes)

    cycles = loop.state.cycles
    assert aside(loop, work) == 1
    assert loop.state.cycles == cycles


def test_what_it_refuses_is_refused(loop):
    def refuses(state):
        raise NotFound("There is no such thing.", "Look elsewhere.")

    def fails(state):
        raise ZeroDivisionError

    with pytest.raises(NotFound, match="no such thing"):
        aside(loop, refuses)
    with pytest.raises(Unavailable, match="ZeroDivisionError"):
        aside(loop, fails)
    with pytest.raises(Unavailable, match=r"within 0\.2 s"):
        aside(loop, lambda state: time.sleep(600), 0.2)


def test_only_so_many_are_worked_on_at_once(loop, monkeypatch):
    monkeypatch.setattr(room, "_turns", threading.BoundedSemaphore(1))

    def work(state):
        began = time.monotonic()
        time.sleep(0.05)
        return began, time.monotonic()

    with ThreadPoolExecutor(4) as askers:
        spans = sorted(askers.map(lambda _: aside(loop, work), range(4)))
    assert all(before[1] <= after[0] for before, after in pairwise(spans))


def test_who_gets_no_turn_is_told_so(loop, monkeypatch):
    turns = threading.BoundedSemaphore(1)
    turns.acquire()
    monkeypatch.setattr(room, "_turns", turns)
    with pytest.raises(Unavailable, match=r"no turn came within 0\.05 s"):
        aside(loop, bool, 0.05)

"""The watcher thread, and the threads that do the work."""

import os
import threading
from contextlib import contextmanager

import pytest

from pliant.engines.local.observe.watch import Closed, Strands, Watcher
from tests.engines.local_rig import SECONDS, until


@pytest.fixture
def watcher():
    watcher = Watcher()
    yield watcher
    watcher.close()


@pytest.fixture
def strands():
    strands = Strands(4)
    yield strands
    strands.close()


@contextmanager
def busy(watcher):
    """Keeps the watcher's thread busy, so that it handles no deadline before the block ends."""
    begun, over = threading.Event(), threading.Event()
    watcher.after(0.0, lambda: (begun.set(), over.wait(SECONDS)))
    assert begun.wait(SECONDS)
    try:
        yield
    finally:
        over.set()


def test_deadlines_come_in_their_order(watcher):
    seen, done = [], threading.Event()
    with busy(watcher):
        watcher.after(0.02, lambda: (seen.append("last"), done.set()))
        watcher.after(-1.0, lambda: seen.append("second"))
        watcher.after(-2.0, lambda: seen.append("first"))
    assert done.wait(SECONDS)
    assert seen == ["first", "second", "last"]


def test_a_descriptor_is_watched_once(watcher):
    out, into = os.pipe()
    seen = threading.Semaphore(0)
    try:
        watcher.add(out, seen.release)
        os.write(into, b"x")
        assert seen.acquire(timeout=SECONDS)
        later = threading.Event()
        watcher.after(0.01, later.set)
        assert later.wait(SECONDS) and not seen.acquire(blocking=False)
        watcher.add(out, seen.release)
        assert seen.acquire(timeout=SECONDS), "it is still readable"
    finally:
        os.close(out)
        os.close(into)


def test_a_call_that_fails_stops_nobody_else(watcher, caplog):
    done = threading.Event()
    watcher.after(0.0, lambda: 1 // 0)
    watcher.after(0.01, done.set)
    assert done.wait(SECONDS)
    assert "ZeroDivisionError" in caplog.text


def test_what_is_due_after_the_end_never_comes():
    watcher, seen = Watcher(), []
    closing = threading.Thread(target=watcher.close)
    with busy(watcher):
        watcher.after(0.0, lambda: seen.append(1))
        closing.start()
        until(watcher._closed.is_set, "it is closed")
    closing.join(SECONDS)
    assert seen == []


def test_one_key_is_one_at_a_time_in_order(strands):
    seen, done = [], threading.Event()
    inside = threading.Lock()

    def step(number):
        assert inside.acquire(blocking=False), "two at a time"
        seen.append(number)
        inside.release()

    for number in range(200):
        strands.submit("a", lambda number=number: step(number))
    strands.submit("a", done.set)
    assert done.wait(SECONDS)
    assert seen == list(range(200))


def test_keys_do_not_wait_for_one_another(strands):
    hold, done = threading.Event(), threading.Event()
    strands.submit("a", lambda: hold.wait(SECONDS))
    strands.submit("b", done.set)
    assert done.wait(SECONDS)
    hold.set()


@pytest.mark.parametrize(("error", "logged"), [(Closed, False), (ValueError, True)])
def test_a_step_that_fails_does_not_stop_its_strand(strands, caplog, error, logged):
    done = threading.Event()

    def fail():
        raise error

    strands.submit("a", fail)
    strands.submit("a", done.set)
    assert done.wait(SECONDS)
    assert ("failed" in caplog.text) == logged


def test_after_the_end_nothing_starts():
    strands, seen = Strands(1), []
    strands.close()
    strands.submit("a", lambda: seen.append(1))
    assert seen == []

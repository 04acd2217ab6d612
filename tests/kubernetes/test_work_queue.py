"""The queue of work on pods: each key once for any number of requests, handled by one thread at a time."""

import threading
import time

from pliant.engines.kube.apiserver import work
from pliant.engines.kube.apiserver.work import WorkQueue
from tests.kubernetes.control_plane import until


def test_a_key_that_is_asked_for_while_it_is_worked_on_is_worked_on_again_and_by_nobody_beside():
    begun, go, most, inside = [], threading.Event(), [], []

    def work(key):
        inside.append(key)
        most.append(inside.count(key))
        begun.append(key)
        go.wait(30)
        inside.remove(key)

    queue = WorkQueue(work, 4)
    queue.add("a")
    until(lambda: begun == ["a"], "it is begun")
    for _ in range(3):
        queue.add("a")
    queue.add("b")
    until(lambda: begun == ["a", "b"], "another one is not held up")
    go.set()
    until(lambda: begun == ["a", "b", "a"], "what was asked for meanwhile is done once")
    assert max(most) == 1
    queue.close()


def test_one_that_comes_later_is_done_sooner_if_that_is_asked_for():
    done = []
    queue = WorkQueue(done.append, 1)
    queue.add("later", 3600)
    queue.add("late", 3600)
    queue.add("late")
    until(lambda: done == ["late"], "it is done")
    queue.close()


def test_what_failed_is_due_at_once_when_its_hindrance_is_gone():
    done, hindered = [], threading.Event()

    def work(key):
        done.append(key)
        if key == "hindered" and not hindered.is_set():
            raise OSError("no")

    queue = WorkQueue(work, 1)
    queue.add("well")
    queue.add("hindered")
    until(lambda: len(done) == 6, "it is tried again in 3.2 s")
    hindered.set()
    queue.hurry()
    queue.hurry()
    queue.add("last")
    until(lambda: done[6:] == ["hindered", "last"], "it is done at once, and only once")
    queue.close()


def test_thousands_that_wait_cost_those_that_are_due_nothing():
    """Measures processor time: a search through all waiting keys for each due one took 40 times as long."""
    done = []
    queue = WorkQueue(done.append, 8)
    for number in range(8000):
        queue.add(("later", number), 3600)
    begun = time.process_time()
    for number in range(4000):
        queue.add(("due", number))
    until(lambda: len(done) == 4000, "all are done")
    assert time.process_time() - begun < 1.0
    queue.close()


def test_one_success_after_failures_makes_all_that_failed_due(monkeypatch):
    """After the API server is back, all keys are tried at once, though each alone would wait longer."""
    monkeypatch.setattr(work, "FIRST", 3600.0)
    monkeypatch.setattr(work, "LAST", 3600.0)
    done, back = [], threading.Event()

    def tried(key):
        done.append(key)
        if not back.is_set():
            raise OSError("away")

    queue = WorkQueue(tried, 1)
    for key in range(20):
        queue.add(key)
    until(lambda: len(done) == 20, "all have failed")
    assert list(map(str, queue.errors(0.0))) == ["away"] * 20 and queue.errors(3600.0) == []
    back.set()
    queue.add(7)
    until(lambda: len(done) == 40 and sorted(done[20:]) == list(range(20)), "all are done")
    until(lambda: queue.errors(0.0) == [], "nothing is wrong any more")
    queue.close()


def test_many_that_fail_are_tried_less_often(monkeypatch):
    """Thousands that fail together make no storm of requests."""
    monkeypatch.setattr(work, "FIRST", 10.0)
    monkeypatch.setattr(work, "LAST", 0.01)
    monkeypatch.setattr(work, "RATE", 20)
    done = []

    def fails(key):
        done.append(time.monotonic())
        raise OSError("no")

    queue = WorkQueue(fails, 4)
    for key in range(40):
        queue.add(key)
    until(lambda: len(done) >= 120, "each was tried three times")
    queue.close()
    assert done[119] - done[0] > 2.0, "80 tries at 20 in a second, the first of which are quicker"

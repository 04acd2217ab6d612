"""The queue of what is to be done about pods: each key once for any number of requests, by one at a time."""

import threading
import time

from pliant.engines.kube.work import WorkQueue
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
    """Processor time: a look through what waits for each of them took 40 times as long."""
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

"""A server that dies at a named point: run by test_local_crash.py.

Reads JSON from stdin: state, supervisor, point, signal, epoch, known, orders [{kind, attempt, script}].
Prints a line for every fact, and `point NAME` before it sends itself the signal there.
"""

import json
import signal
import sys
import threading
from pathlib import Path

from pliant.engines.local.engine import LocalEngine
from pliant.model.order import Start, Stop
from pliant.model.workload import Attempt, AttemptId, Launch
from tests.engines.contract import GRACE, NODE, place, workload
from tests.engines.local_rig import Machine


def main():
    task = json.load(sys.stdin)
    said = threading.Lock()

    def say(text):
        with said:
            print(text, flush=True)

    def halt(point):
        if point == task["point"]:
            say(f"point {point}")
            signal.pthread_kill(threading.get_ident(), task["signal"])  # this thread does not continue

    def order(item):
        attempt = AttemptId.parse(item["attempt"])
        if item["kind"] == "stop":
            return engine.stop(Stop(attempt, NODE.name, GRACE, "d", task["epoch"]))
        launch = Launch("ubuntu", ("sh", "-c", item["script"]), grace=GRACE)
        return engine.start(Start(attempt, place(0), workload(attempt.workload, launch), "d", task["epoch"]))

    engine = LocalEngine(Path(task["state"]), Machine(NODE), halt=halt, supervisor=task["supervisor"])
    known = [Attempt(AttemptId.parse(text), place(0), 1, "d", 0) for text in task["known"]]
    engine.open(lambda fact: say(f"fact {type(fact).__name__}"), known, task["epoch"])
    for item in task["orders"]:
        order(item)
    signal.pause()


if __name__ == "__main__":
    main()

"""What an idle server costs: memory, CPU, wake-ups; and how long it takes to start.

Goals: 200 MB resident, server and decider together, and 1 % of a core. Input: made here. One node of two GPUs
without a workload; then with two `sleep infinity` that run and one that waits. Reference in the same run:
`python -c pass` (its time; for memory the resident size of an interpreter that sleeps).
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import time
from functools import partial

from measure import (
    Server,
    alternately,
    cpu_seconds,
    environment,
    family,
    head,
    python_pass,
    resident,
    row,
    switches,
    tiny,
    took,
    training,
)


def main() -> int:
    short = tiny(__doc__)
    seconds, starts = (0.5, 1) if short else (15.0, 3)
    ups, again = [], []
    for _ in range(starts):
        server = Server("1x2")
        ups.append(took(server.__enter__))
        with contextlib.closing(server):
            again.append(took(partial(server.run, "restart")))
    (python,) = alternately(3 if short else 15, python_pass)
    with Server("1x2") as server, server.client() as client:
        empty = used(server.pid, seconds)
        for number in range(3):
            client.submit("Training", training(f"w{number}", "sleep", "infinity"))
        while sum(item["phase"] == "Running" for item in client.workloads()) < 2:
            time.sleep(0.05)
        client.close()  # a kept connection would end during the measurement
        busy = used(server.pid, seconds)
        memory = [resident(pid) for pid in family(server.pid)]
    plain = interpreter()
    head(f"{seconds:g} s each; python -c pass {python:.2f} ms, a sleeping interpreter {plain:.1f} MB")
    to_python, to_plain = (python, "python -c pass"), (plain, "a sleeping interpreter")
    row("resident, server and decider", sum(memory), "MB", target=200, to=to_plain)
    row("of that the server", memory[0], "MB", target=150, to=to_plain)
    row("CPU, no workloads", empty[0], "%", target=1, to=(100, "a core"))
    row("CPU, two run and one waits", busy[0], "%", target=1, to=(100, "a core"))
    row("wake-ups, no workloads", empty[1], "/s", to=(1, "one a second"))
    row("wake-ups, two run and one waits", busy[1], "/s", to=(1, "one a second"))
    row("`pliant up` until it returns, fresh folder", statistics.median(ups), "ms", to=to_python)
    row("`pliant restart` until it returns", statistics.median(again), "ms", to=to_python)
    return 0


def used(pid: int, seconds: float) -> tuple[float, float]:
    """(percent of a core, wake-ups a second) of an idle server."""
    time.sleep(min(1.0, seconds))  # for work that the last request left
    pids = family(pid)
    cpu, woken, began = sum(map(cpu_seconds, pids)), sum(map(switches, pids)), time.monotonic()
    time.sleep(seconds)
    past = time.monotonic() - began
    return 100 * (sum(map(cpu_seconds, pids)) - cpu) / past, (sum(map(switches, pids)) - woken) / past


def interpreter() -> float:
    """Resident MB of an interpreter that sleeps."""
    code = "import time; print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment()) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            return resident(process.pid)
        finally:
            process.kill()


if __name__ == "__main__":
    sys.exit(main())

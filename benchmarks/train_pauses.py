"""How long training pauses when a worker is lost, leaves or joins: ours beside torchrun, in one run.

A pause is the time between the last step before an event and the first one after it, minus the median step,
on a worker that is there before and after it (with torchrun none is: on any). Steps are paced to 50 ms; 4
workers on CPU with Gloo. Lost steps are those that were applied and are no longer in the weights.

Input: synthetic, made here. Reference in the same run: torchrun.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from measure import environment, head, percentile, row, tiny

from pliant.train.agent.fleet import Fleet, MasterProcess

WORKER = Path(__file__).with_name("_train_worker.py")
Line = tuple[int, float, int, int, int]  # step, time, rank, size, pid


def lines(out: Path) -> list[Line]:
    found = []
    for path in out.iterdir():
        for text in path.read_text().splitlines():
            parts = text.split()
            if len(parts) == 5:
                found.append((int(parts[0]), float(parts[1]), int(parts[2]), int(parts[3]), int(parts[4])))
    return sorted(found, key=lambda line: line[1])


def until(what: Callable[[], object], seconds: float, poll: Callable[[], object] = lambda: None) -> bool:
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            return False
        poll()
        time.sleep(0.01)
    return True


def gap(found: list[Line], at: float) -> tuple[float, int] | None:
    """(ms that the longest pause of a survivor exceeded a median step, steps lost) around the time `at`."""
    worst = None
    before = [line for line in found if line[1] <= at]
    step = max(line[0] for line in before)
    for pid in {line[4] for line in before}:
        mine = [line for line in found if line[4] == pid]
        after = [line for line in mine if line[1] > at + 0.5]
        if not after:
            continue
        near = [line for line in mine if at - 1 < line[1] < at + 3] or mine
        steps = [b[1] - a[1] for a, b in itertools.pairwise(mine)]
        longest = max(b[1] - a[1] for a, b in itertools.pairwise(near))
        again = min((line[0] for line in mine if line[1] > at), default=step)
        pause = 1000 * (longest - statistics.median(steps))
        worst = max(worst or (0.0, 0), (pause, max(step - again + 1, 0) if again <= step - 1 else 0))
    return worst


def ours(rounds: int) -> dict[str, list[float]]:
    folder = Path(tempfile.mkdtemp(prefix="pliant-bench-"))
    out = folder / "out"
    out.mkdir()
    pauses: dict[str, list[float]] = {"loss": [], "leave": [], "join": [], "lost": []}
    master = MasterProcess(folder / "job", "bench")
    env = {**environment(), **master.environment(), "BENCH_OUT": str(out)}
    fleet = Fleet([sys.executable, str(WORKER)], master.client, folder / "job", env=env)

    def status() -> dict:
        fleet.poll()
        return master.client.call("status")

    def settled(world: int) -> None:
        assert until(lambda: status()["world"] == world, 120), f"no world of {world}: {status()}"
        time.sleep(1.5)

    try:
        names = [f"cpu-{i}" for i in range(4)]
        fleet.hold(names)
        settled(4)
        time.sleep(1)
        for _ in range(rounds):
            members = sorted(
                (w for w in status()["workers"] if w["rank"] is not None), key=lambda w: w["rank"]
            )
            generation = status()["generation"]
            at = time.monotonic()
            os.kill(members[3]["pid"], signal.SIGKILL)
            until(lambda g=generation: master.client.call("status")["generation"] > g, 30)
            time.sleep(1.5)
            measured = gap(lines(out), at)
            if measured:
                pauses["loss"].append(measured[0])
                pauses["lost"].append(measured[1])
            # The fleet starts a replacement, which joins; the others train during its start-up.
            generation = status()["generation"]
            assert until(lambda g=generation: status()["generation"] > g, 120)
            at = time.monotonic()
            time.sleep(2)
            if measured := gap(lines(out), at - 0.2):
                pauses["join"].append(measured[0])
            at = time.monotonic()
            fleet.hold(names[:3])
            settled(3)
            if measured := gap(lines(out), at):
                pauses["leave"].append(measured[0])
            fleet.hold(names)
            settled(4)
    finally:
        fleet.close()
        master.close()
        shutil.rmtree(folder, ignore_errors=True)
    return pauses


def torchrun(rounds: int) -> dict[str, list[float]]:
    """One worker of four is killed; a second agent with two workers joins the first and leaves by SIGTERM."""
    folder = Path(tempfile.mkdtemp(prefix="pliant-bench-"))
    pauses: dict[str, list[float]] = {"loss": [], "leave": [], "join": [], "lost": []}
    program = Path(sys.executable).parent / "torchrun"
    started: list[subprocess.Popen] = []

    def start(out: Path, *words: str) -> subprocess.Popen:
        out.mkdir(exist_ok=True)
        env = {**environment(), "BENCH_OUT": str(out), "OMP_NUM_THREADS": "1"}
        env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
        done = subprocess.Popen(
            [program, *words, str(WORKER)], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        started.append(done)
        return done

    def resumed(out: Path, at: float, size: int) -> float | None:
        """ms without a step of any worker until a world of this size makes one; None if none does in 90 s."""
        if not until(lambda: any(x[1] > at and x[3] == size and x[0] >= 2 for x in lines(out)), 90):
            return None
        found = lines(out)
        first = next(line[1] for line in found if line[1] > at and line[3] == size and line[0] < 3)
        last = max(line[1] for line in found if line[1] < first - 0.3 and (line[1] <= at or line[3] != size))
        return 1000 * (first - last) - 50

    try:
        for number in range(rounds):
            out = folder / f"loss-{number}"
            agent = start(out, "--standalone", "--nproc-per-node=4", "--max-restarts=3")
            assert until(lambda o=out: sum(line[0] == 10 for line in lines(o)) >= 4, 120), (
                "torchrun did not begin"
            )
            time.sleep(1)
            found = lines(out)
            at = time.monotonic()
            os.kill(found[-1][4], signal.SIGKILL)
            done = found[-1][0]
            if until(lambda o=out, a=at: any(x[1] > a + 0.5 and x[0] == 2 for x in lines(o)), 90):
                first = next(x[1] for x in lines(out) if x[1] > at + 0.3 and x[0] == 1)
                pauses["loss"].append(1000 * (first - at) - 50)
                pauses["lost"].append(done)
            agent.terminate()
            agent.wait()
        for number in range(max(rounds // 3, 1)):
            out = folder / f"nodes-{number}"
            port = 29400 + os.getpid() % 500 + number
            words = [
                "--nnodes=1:2", "--nproc-per-node=2", "--rdzv-backend=c10d",
                f"--rdzv-endpoint=127.0.0.1:{port}",
                f"--rdzv-id=b{number}", "--rdzv-conf=last_call_timeout=1", "--max-restarts=5",
            ]  # fmt: skip
            first = start(out, *words)
            assert until(lambda o=out: any(x[0] == 20 for x in lines(o)), 120), "torchrun did not begin"
            at = time.monotonic()
            second = start(out, *words)
            if (pause := resumed(out, at, 4)) is not None:
                pauses["join"].append(pause)
                time.sleep(2)
                at = time.monotonic()
                second.terminate()
                if (pause := resumed(out, at, 2)) is not None:
                    pauses["leave"].append(pause)
            for agent in (second, first):
                agent.terminate()
                agent.wait()
    finally:
        for agent in started:
            if agent.poll() is None:
                agent.terminate()
                try:
                    agent.wait(20)
                except subprocess.TimeoutExpired:
                    agent.kill()
        shutil.rmtree(folder, ignore_errors=True)
    return pauses


GOALS = {"loss": 500, "leave": 300, "join": 500}


def main() -> int:
    short = tiny(__doc__)
    mine = ours(1 if short else 10)
    nothing: dict[str, list[float]] = {"loss": [], "leave": [], "join": [], "lost": []}
    theirs = nothing if short else torchrun(3)
    head("pauses of training, p50")
    for what, goal in GOALS.items():
        own, other = mine[what], theirs[what]
        reference = (statistics.median(other), f"torchrun (n={len(other)})") if other else (1.0, "1 ms")
        if own:
            row(f"{what}, n={len(own)}", statistics.median(own), "ms", target=goal, to=reference)
            row(f"{what}, the longest", percentile(own, 1), "ms", to=reference)
        if other:
            row(f"{what} with torchrun, n={len(other)}", reference[0], "ms", to=reference)
    row("steps lost with a worker, at most", max(mine["lost"], default=0), "", target=1, to=(1.0, "step"))
    if theirs["lost"]:
        row(
            "steps lost with torchrun", statistics.median(theirs["lost"]), "", to=(1.0, "all since the start")
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

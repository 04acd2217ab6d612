"""Two jobs of 4 GPUs on 6: what elastic training gains over gangs, with real processes on simulated GPUs.

Each job is a master and three workers of one GPU that train with `pliant.train`; a step takes a declared time
divided by the number of workers (it sleeps, so that the machine's speed does not matter). Job 2 is submitted
at a quarter of `--seconds`. As a gang, it waits for job 1; elastic, it starts on the two GPUs that are left
and grows when job 1 ends. Time counts from the submission of job 1 to the end of both. The jobs' own logs
must have each record exactly once, in both cases.

Input: ElasticDL's published case, 968 s as gangs and 809 s elastic (16.4 % less); 18.75 % would be ideal.
Reference in the same run: the gangs. `--seconds` is the time of job 1's steps on four GPUs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from measure import Server, head, row

from pliant.client import Client

GAIN = 16.4  # percent, as published
STEPS = 400
BATCH = 16

SCRIPT = """
import os, sys, time
import torch
import pliant.train as pt

steps, seconds = int(sys.argv[1]), float(sys.argv[2])
torch.set_num_threads(1)
torch.manual_seed(0)
log = open(os.path.join(os.environ["PLIANT_ATTEMPT_DIR"], f"records-{os.getpid()}"), "a", buffering=1)
job = pt.init(on_applied=lambda step, records: log.write(f"{step}:{','.join(map(str, records))}\\n"))
x = torch.randn(steps * BATCH, 8)
y = x @ torch.randn(8, 1)
model = torch.nn.Linear(8, 1)
model, _, _ = job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
data = job.data(torch.utils.data.TensorDataset(x, y), global_batch=BATCH)
due = time.monotonic()
for _ in job.epochs(1):
    for batch in data:
        with job.step(batch) as step:
            step.backward(((model(batch.x) - batch.y) ** 2).mean())
        due = max(due, time.monotonic() - seconds / job.size) + seconds / job.size
        time.sleep(max(0.0, due - time.monotonic()))
"""


def submit(client: Client, folder: Path, name: str, steps: int, each: float, *, least: int) -> str:
    """A master and three workers, at least `least`; `each`: seconds of a step on one worker."""
    # Runs the agent as a module: a script that starts it would import torch once for nothing.
    train = [sys.executable, str(folder / "train.py"), str(steps), str(each)]
    spec = {
        "image": "ubuntu",
        "commandArgv": [sys.executable, "-m", "pliant.train.agent", "--", *train],
        "compute": {"gpuDevicesRequest": 1},
        "distributedFramework": "PyTorch",
        "numWorkers": 3,
        "minReplicas": least,
        "maxReplicas": 3,
    }
    body = {"name": name, "projectName": "team", "spec": spec}
    return str(client.submit("Distributed", body)["workloadId"])


def run(steps: int, seconds: float, *, elastic: bool) -> tuple[float, float, float]:
    """(seconds until both are over, of job 1 alone, share of GPUs in use until job 1 ends)."""
    each = 4 * seconds / steps
    with Server("1x6") as server, server.client() as client:
        server.run("project", "create", "team", "--quota", "6")
        (server.folder / "train.py").write_text(SCRIPT.replace("BATCH", str(BATCH)))
        began = time.monotonic()
        first = submit(client, server.folder, "one", steps, each, least=1 if elastic else 3)
        second, ended, used, looks = "", 0.0, 0.0, 0
        while True:
            passed = time.monotonic() - began
            if not second and passed >= seconds / 4:
                second = submit(client, server.folder, "two", steps, each, least=1 if elastic else 3)
            items = [client.workload(one) for one in (first, second) if one]
            if any(item["phase"] == "Failed" for item in items):
                raise SystemExit(f"a job has failed: {server.run('logs', 'one')[-2000:]}")
            done = [item["phase"] == "Completed" for item in items]
            if second and not done[0]:
                used += sum(item["allocatedResources"]["gpu"] for item in items)
                looks += 1
            if done[0] and not ended:
                ended = time.monotonic() - began
            if len(done) == 2 and all(done):
                break
            time.sleep(0.2)
        total = time.monotonic() - began
        for identity in (first, second):
            check(server.folder / "state" / "attempts" / identity, steps)
    return total, ended, used / 6 / max(looks, 1)


def check(attempts: Path, steps: int) -> None:
    """Checks in the ranks' own logs that every record was applied exactly once."""
    seen: Counter[int] = Counter()
    for log in attempts.glob("*/*/records-*"):
        for line in log.read_text().splitlines():
            seen.update(int(number) for number in line.partition(":")[2].split(",") if number)
    wrong = {record: count for record, count in seen.items() if count != 1}
    assert not wrong and len(seen) == steps * BATCH, f"{len(seen)} records; wrong: {sorted(wrong)[:5]}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tiny", action="store_true", help="a few seconds, whose numbers mean nothing")
    parser.add_argument("--seconds", type=float, default=180.0, help="of job 1 on four GPUs (180)")
    given = parser.parse_args()
    steps, seconds = (40, 6.0) if given.tiny else (STEPS, given.seconds)
    gangs, alone, busy = run(steps, seconds, elastic=False)
    total, first, used = run(steps, seconds, elastic=True)
    saved = 100 * (1 - total / gangs)
    head(f"two jobs of 4 GPUs on 6, {steps} steps; job 1: {alone:.0f} s as a gang, {first:.0f} s elastic")
    row("both as gangs", gangs, "s", to=(2 * seconds, "twice the declared time"))
    row("both elastic", total, "s", target=round(gangs * (1 - GAIN / 100), 1), to=(gangs, "gangs"))
    row("less time", saved, "%", to=(GAIN, "ElasticDL's published gain"))
    row("GPUs in use until job 1 ends", 100 * used, "%", to=(100 * busy, "gangs"))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m pliant.train`: run a job on this machine, show its status, export its weights."""

import argparse
import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pliant.train.agent.fleet import Fleet, MasterProcess, inherited, master_record
from pliant.train.errors import Refused, TrainError
from pliant.train.master.calls import MasterClient

POLL_S = 0.05


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m pliant.train", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run", help="train with several workers on this machine")
    run.add_argument("--workers", default="2", metavar="N", help="number of worker processes (default: 2)")
    run.add_argument("--dir", type=Path, help="folder of the job (default: a temporary one)")
    run.add_argument("--port", type=int, default=0, help="port of the master (default: any free one)")
    run.add_argument(
        "--grace-ms", type=int, default=30_000, help="time from SIGTERM to SIGKILL (default: 30000)"
    )
    run.add_argument("script", nargs=argparse.REMAINDER, help="script.py and its arguments")
    master = verbs.add_parser("master", help="run the master of a job (started by its agent)")
    master.add_argument("--dir", type=Path, required=True)
    master.add_argument("--job", required=True)
    master.add_argument("--host", default="127.0.0.1")
    master.add_argument("--port", type=int, default=0)
    master.add_argument("--listen-fd", type=int)
    master.add_argument("--min-workers", type=int, default=1)
    master.add_argument("--silence-ms", type=int, default=10_000)
    master.add_argument("--join-window-ms", type=int, default=1_000)
    status = verbs.add_parser("status", help="print the job's status as JSON")
    status.add_argument("--dir", type=Path, required=True)
    export = verbs.add_parser("export", help="write the model's state_dict as a file for torch.load")
    export.add_argument("folder", type=Path, metavar="DIR", help="the job's checkpoint folder, or one in it")
    export.add_argument("target", type=Path, metavar="FILE", help="for example model.pt")
    given = parser.parse_args(argv)
    try:
        return {"run": _run, "master": _master, "status": _status, "export": _export}[given.verb](given)
    except TrainError as error:
        print(f"pliant.train: {error}", file=sys.stderr)
        return 1


def _bounds(text: str) -> tuple[int, int]:
    least, colon, most = text.partition(":")
    if not least.isdigit() or (colon and not most.isdigit()):
        raise TrainError(f"--workers takes a number or MIN:MAX, not {text!r}")
    low, high = int(least), int(most) if colon else int(least)
    if low < 1 or low > high:
        raise TrainError(f"--workers {text}: the minimum must be at least 1 and at most the maximum")
    return low, high


def _run(given: Any) -> int:
    low, high = _bounds(given.workers)
    script = [word for word in given.script if word != "--"][:1]
    if not script:
        raise TrainError("Name the script to run: python -m pliant.train run --workers 4 train.py")
    if not Path(script[0]).is_file():
        raise TrainError(f"Script {script[0]} not found")
    folder = given.dir or Path(tempfile.mkdtemp(prefix="pliant-train-"))
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _signal, _frame: stop.set())
    words = given.script[1:] if given.script[:1] == ["--"] else given.script
    try:
        return run_job(words, high, folder, low=low, port=given.port, grace_ms=given.grace_ms, stop=stop)
    finally:
        if given.dir is None:
            shutil.rmtree(folder, ignore_errors=True)


def run_job(
    script: Sequence[str],
    workers: int,
    folder: Path,
    *,
    low: int = 1,
    port: int = 0,
    grace_ms: int = 30_000,
    stop: threading.Event | None = None,
) -> int:
    """Train until the job is over. Returns 0 if it succeeded, else 1. Once `stop` is set, all workers leave,
    with a checkpoint if the script has a folder for it."""
    devices = devices_for(workers)
    env = {"PYTHONUNBUFFERED": "1"}
    if all(device.startswith("cpu") for device in devices):
        env["OMP_NUM_THREADS"] = str(max((os.cpu_count() or 1) // workers, 1))
    master = MasterProcess(folder, f"run-{os.getpid()}", port=port, min_workers=low)
    fleet = Fleet(
        [sys.executable, *script],
        master.client,
        folder,
        env={**env, **master.environment()},
        grace_ms=grace_ms,
    )
    try:
        fleet.hold(devices)
        while True:
            master.poll()
            fleet.poll()
            if stop is not None and stop.is_set():
                fleet.hold([])
            if not fleet.devices():
                state = master.client.call("status")
                (folder / "status.json").write_text(json.dumps(state, indent=1), "utf-8")
                if state["state"] == "failed":
                    print(f"The job has failed. {state['error']}", file=sys.stderr)
                    return 1
                return 0 if state["state"] == "finished" else 1
            time.sleep(POLL_S)
    finally:
        fleet.close()
        master.close()


def devices_for(count: int) -> list[str]:
    """Device names for `count` workers: the visible GPUs in turn, or CPUs if there are none."""
    shown, usable = os.environ.get("CUDA_VISIBLE_DEVICES"), _usable_gpus()
    names = [str(i) for i in range(usable)] if shown is None else [name.strip() for name in shown.split(",")]
    # CUDA ends the list at a name that is not there, and shows one process at most one MIG instance.
    gpus = [name for name in names if name.startswith("MIG-")] or names[:usable]
    if not gpus:
        return [f"cpu-{i}" for i in range(count)]
    turns = (divmod(i, len(gpus)) for i in range(count))
    return [f"{gpus[place]}#{turn}" if turn else gpus[place] for turn, place in turns]


def _usable_gpus() -> int:
    """The number of GPUs on which torch can compute here, counted by a process that ends: no torch stays."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "" or "PLIANT_SIM_CARDS" in os.environ:
        return 0  # as `init` chooses: simulated cards compute nothing
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:  # no driver: loading torch to learn that takes seconds
        return 0
    code = "import torch; print(torch.cuda.device_count())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return int(done.stdout) if done.returncode == 0 else 0  # torch is missing, or cannot be loaded


def _master(given: Any) -> int:
    from pliant.train.master.membership import Times
    from pliant.train.master.service import Master

    token_file = given.dir / "token"
    if not token_file.is_file():
        raise TrainError(f"{token_file} is missing: the agent writes it before it starts the master")
    times = Times(silence=given.silence_ms, join_window=given.join_window_ms)
    listener = inherited(given.listen_fd) if given.listen_fd is not None else None
    master = Master(
        given.dir,
        given.job,
        token_file.read_text("utf-8").strip(),
        host=given.host,
        port=given.port,
        listener=listener,
        times=times,
        min_workers=given.min_workers,
    )
    master_record(given.dir, master.address, given.job)
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        # A stop of the task also signals the master: its agent ends it once the workers have left.
        led = given.listen_fd is not None
        signal.signal(number, signal.SIG_IGN if led else lambda _signal, _frame: over.set())
    parent = os.getppid()
    while not over.wait(1):
        if os.getppid() != parent:  # the agent has ended, and its workers with it
            break
    master.close()
    return 0


def _export(given: Any) -> int:
    from pliant.train.worker.snapshot import export  # torch: only here

    try:
        step, names = export(given.folder, given.target)
    except OSError as error:
        raise TrainError(f"{given.target} cannot be written: {error.strerror}") from error
    print(f"{given.target}: the weights of step {step}, {names} tensors")
    return 0


def _status(given: Any) -> int:
    try:
        record = json.loads((given.dir / "master.json").read_text("utf-8"))
        token = (given.dir / "token").read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        raise TrainError(f"No master has run in {given.dir}: {error}") from error
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps(MasterClient(record["address"], token).call("status", patience_s=2), indent=1))
    return 0


__all__ = ["Refused", "devices_for", "main", "run_job"]

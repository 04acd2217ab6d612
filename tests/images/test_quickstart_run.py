"""The quickstart as real processes: equal losses, stops, deaths, its share of the CPU, bad checkpoints."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.images.quickstart_run import PROGRAM, started

STEPS = 40
SLOWLY = {"QUICKSTART_STEP_SECONDS": "0.25"}  # so that the run does not end before it is stopped


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """The losses of steps 0..STEPS-1 of an undisturbed run with one worker."""
    with started(tmp_path_factory.mktemp("reference"), "0", QUICKSTART_STEPS=str(STEPS)) as run:
        assert run.wait() == 0, run.errors
        assert list(run.losses()) == list(range(STEPS))
        return run.losses()


def checkpoint_of(folder: Path) -> dict[str, int]:
    return json.loads((folder / "quickstart.checkpoint").read_bytes().split(b"\n")[0])


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("gpus", [None, "0,1", "GPU-a,GPU-b,GPU-c", ",".join(map(str, range(18)))])
def test_the_loss_of_a_step_is_the_same_with_any_number_of_workers(
    tmp_path: Path, uninterrupted: dict[int, str], gpus: str | None
) -> None:
    with started(tmp_path, gpus, QUICKSTART_STEPS="10") as run:
        assert run.wait() == 0, run.errors
        assert run.losses() == {step: uninterrupted[step] for step in range(10)}
        assert f"gpus={len(gpus.split(',')) if gpus else 0}\n" in run.output


def test_a_run_goes_on_where_it_was_stopped_with_another_number_of_workers(
    tmp_path: Path, uninterrupted: dict[int, str]
) -> None:
    variables = {"QUICKSTART_STEPS": str(STEPS), "PLIANT_CHECKPOINT_DIR": str(tmp_path / "new" / "folder")}
    losses: dict[int, str] = {}
    for gpus, stop_after in (("0,1", 7), ("0", 15), ("0,1,2", 22)):
        with started(tmp_path, gpus, **variables, **SLOWLY) as run:
            run.wait_for_step(stop_after)
            assert run.stop() == 0, run.errors
            assert run.first_step() == len(losses), (
                "the first step after a resume is the next one, and printed"
            )
            losses |= run.losses()
            assert f"checkpoint of step {len(losses)} in " in run.output
    with started(tmp_path, "0", **variables) as run:
        assert run.wait() == 0, run.errors
        assert f"resuming at step {len(losses)} " in run.output
        losses |= run.losses()
    assert losses == uninterrupted
    with started(tmp_path, "0", **variables) as run:
        assert run.wait() == 0, run.errors
        assert run.losses() == {}, "all steps are done already"
        assert f"held-out records after {STEPS} steps" in run.output


def test_one_worker_per_gpu_each_with_its_own(tmp_path: Path) -> None:
    with started(tmp_path, "GPU-a,GPU-b") as run:
        run.wait_for_step(0)
        workers = run.workers()
        assert sorted(workers) == ["1/2", "2/2"]
        assert set(run.alive()) == {run.process.pid, *workers.values()}
        for name, gpu in (("1/2", b"GPU-a"), ("2/2", b"GPU-b")):
            environment = Path(f"/proc/{workers[name]}/environ").read_bytes().split(b"\0")
            assert b"CUDA_VISIBLE_DEVICES=" + gpu in environment
            assert b"OPENBLAS_NUM_THREADS=1" in environment
        for pid in run.alive():
            assert len(list(Path(f"/proc/{pid}/task").iterdir())) == 1, "one thread"
        assert run.stop() == 0


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_whole_group_stops_at_once_however_slow_the_pace(
    tmp_path: Path, name: signal.Signals
) -> None:
    folder = tmp_path / "checkpoints"
    variables = {"QUICKSTART_STEP_SECONDS": "60", "PLIANT_CHECKPOINT_DIR": str(folder)}
    with started(tmp_path, "0,1", **variables) as run:
        run.wait_for_step(0)
        os.killpg(run.process.pid, name)
        assert run.wait() == 0, run.errors
        assert f"stop requested ({name.name}); checkpoint of step 1 in {folder}" in run.output
        assert run.errors == ""


def test_a_stop_gives_up_a_step_that_a_frozen_worker_holds(
    tmp_path: Path, uninterrupted: dict[int, str]
) -> None:
    variables = {"QUICKSTART_STEPS": str(STEPS), "PLIANT_CHECKPOINT_DIR": str(tmp_path)}
    with started(tmp_path, "0,1", **variables, **SLOWLY) as run:
        run.wait_for_step(3)
        os.kill(run.workers()["2/2"], signal.SIGSTOP)
        assert run.stop() == 0, run.errors
        losses = run.losses()
        assert checkpoint_of(tmp_path)["step"] == len(losses)
    with started(tmp_path, "0,1", **variables) as run:
        assert run.wait() == 0, run.errors
        assert losses | run.losses() == uninterrupted


def test_a_killed_worker_is_named_and_nothing_is_lost(tmp_path: Path) -> None:
    with started(tmp_path, "0,1", PLIANT_CHECKPOINT_DIR=str(tmp_path), QUICKSTART_PRINT_EVERY="1") as run:
        run.wait_for_step(3)
        worker = run.workers()["2/2"]
        os.kill(worker, signal.SIGKILL)
        assert run.wait() == 1
        assert f"worker 2/2 (pid {worker}) was killed by SIGKILL" in run.errors
        assert checkpoint_of(tmp_path)["step"] == len(run.losses())


def test_a_killed_parent_leaves_no_worker_and_its_last_periodic_checkpoint(
    tmp_path: Path, uninterrupted: dict[int, str]
) -> None:
    variables = {"QUICKSTART_STEPS": str(STEPS), "PLIANT_CHECKPOINT_DIR": str(tmp_path)}
    with started(tmp_path, "0,1", **variables, **SLOWLY, QUICKSTART_CHECKPOINT_SECONDS="0.1") as run:
        run.wait_for_step(8)
        run.process.kill()
        assert run.wait() == -signal.SIGKILL  # and waits until no worker is left
        last = max(run.losses())
    with started(tmp_path, "0", **variables) as run:
        assert run.wait() == 0, run.errors
        assert 0 < run.first_step() <= last + 1
        assert run.losses().items() <= uninterrupted.items()


def test_it_uses_at_most_a_tenth_of_a_core_per_worker(tmp_path: Path) -> None:
    with started(tmp_path, "0,1", QUICKSTART_PRINT_EVERY="1") as run:
        run.wait_for_step(0)
        pids = list(run.alive())
        assert len(pids) == 3
        before, began = [cpu_seconds(pid) for pid in pids], time.monotonic()
        run.wait_for_step(max(run.losses()) + 30)  # beyond those done meanwhile
        wall = time.monotonic() - began
        used = [cpu_seconds(pid) - start for pid, start in zip(pids, before, strict=True)]
        tick = 1 / os.sysconf("SC_CLK_TCK")
        assert sum(used) <= 0.10 * wall * 2 + 3 * tick
        assert max(used) <= 0.10 * wall + tick
        assert wall > 2.5, "30 steps of 0.1 s"


def make_checkpoint(folder: Path, seed: int) -> Path:
    with started(
        folder, QUICKSTART_STEPS="2", PLIANT_CHECKPOINT_DIR=str(folder), QUICKSTART_SEED=str(seed)
    ) as run:
        assert run.wait() == 0, run.errors
    return folder / "quickstart.checkpoint"


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda good: good[:-1000], "it is cut off"),
        (lambda good: good[:20], "it is not a checkpoint of the quickstart"),
        (lambda good: b"", "it is not a checkpoint of the quickstart"),
        (lambda good: b"PK\x03\x04 somebody else's \xff\n\n", "it is not a checkpoint of the quickstart"),
        (lambda good: good.replace(b"start-1", b"start-9"), "it is of another version"),
        (lambda good: good[:-1] + bytes([good[-1] ^ 1]), "its checksum is wrong"),
        (
            lambda good: good.replace(b'"seed": 0', b'"seed": 5'),
            "it was made with seed 5, this run has seed 0",
        ),
    ],
)
def test_a_checkpoint_that_cannot_be_used_is_moved_aside(tmp_path: Path, damage, reason: str) -> None:
    file = make_checkpoint(tmp_path, seed=0)
    bad = damage(file.read_bytes())
    file.write_bytes(bad)
    (tmp_path / "quickstart.checkpoint.unusable-1").write_text("an earlier one")
    with started(tmp_path, QUICKSTART_STEPS="2", PLIANT_CHECKPOINT_DIR=str(tmp_path)) as run:
        assert run.wait() == 0, run.errors
        aside = tmp_path / "quickstart.checkpoint.unusable-2"
        assert f"the checkpoint cannot be used: {reason}" in run.output
        assert f"moved to {aside}, starting again at step 0" in run.output
        assert run.first_step() == 0
    assert aside.read_bytes() == bad
    assert (tmp_path / "quickstart.checkpoint.unusable-1").read_text() == "an earlier one"


def test_a_checkpoint_folder_that_is_none_ends_the_run_before_it_trains(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with started(tmp_path, PLIANT_CHECKPOINT_DIR=str(tmp_path / "file")) as run:
        assert run.wait() == 1
        assert "cannot use the checkpoint folder" in run.errors
        assert run.losses() == {}


def test_without_a_checkpoint_folder_it_says_so(tmp_path: Path) -> None:
    with started(tmp_path, "0") as run:
        run.wait_for_step(0)
        assert run.stop() == 0
        assert "no checkpoints, because PLIANT_CHECKPOINT_DIR is not set" in run.output
        assert "stop requested (SIGTERM); no checkpoint" in run.output


def call(
    *arguments: str, stdout: int | None = subprocess.PIPE, **variables: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", PROGRAM, *arguments]
    environment = os.environ | variables
    return subprocess.run(
        command, stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment, timeout=240, check=False
    )


def test_a_full_disk_under_the_log_does_not_end_the_training(tmp_path: Path) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        done = call(stdout=full, QUICKSTART_STEPS="3", PLIANT_CHECKPOINT_DIR=str(tmp_path))
    finally:
        os.close(full)
    assert (done.returncode, done.stderr) == (0, "")
    assert checkpoint_of(tmp_path)["step"] == 3


def test_a_reader_that_goes_away_ends_the_run_with_a_checkpoint(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = call(stdout=writing, PLIANT_CHECKPOINT_DIR=str(tmp_path))
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, "quickstart: the reader of the output is gone\n")


def test_wrong_settings_and_arguments_are_refused() -> None:
    refused = call(QUICKSTART_STEPS="0")
    assert (refused.returncode, refused.stdout) == (2, "")
    wanted = "QUICKSTART_STEPS=0 is not a whole number from 1 to 4294967295; leave it out for the default"
    assert refused.stderr == f"quickstart: {wanted}\n"
    assert call("--fast").returncode == 2
    assert "QUICKSTART_STEPS=N" in call("--help").stdout


def test_it_brings_nothing_but_numpy_into_a_task() -> None:
    modules = [f"{PROGRAM}.{name}" for name in ("__main__", "training", "worker")]
    code = f"import {', '.join(modules)}, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    names = set(loaded.stdout.split())
    parents = {PROGRAM.rsplit(".", cut)[0] for cut in range(1, PROGRAM.count(".") + 1)}
    ours = {name for name in names if name.startswith("pliant")}
    assert {name for name in ours if not name.startswith(PROGRAM)} == parents
    bare = subprocess.run(
        [sys.executable, "-P", "-c", "import sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    new = {name.partition(".")[0] for name in names - ours - set(bare.stdout.split())}
    assert new - sys.stdlib_module_names <= {"numpy"}

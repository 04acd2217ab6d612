"""Several workers and one error: the job names it, and ends or continues as it should."""

import contextlib
import multiprocessing
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from pliant.train.errors import GenerationOver
from pliant.train.rendezvous.group import _gloo
from pliant.train.worker.reading import _die_with_the_trainer
from tests.train.jobs import Running
from tests.train.zygote import Zygote

pytestmark = pytest.mark.timeout(900)  # real processes: a busy machine is no failure
SCRIPT = Path(__file__).with_name("slips.py")


def started(zygote: Zygote, folder: Path, slip: str, workers: int = 2, **spec: Any) -> Running:
    job = Running(zygote, folder, {"slip": slip, **spec}, script=SCRIPT)
    job.hold(workers)
    return job


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2)], ids=["one joins", "one leaves"])
def test_values_that_differ_at_a_meeting_are_in_the_status(
    zygote: Zygote, tmp_path: Path, before: int, after: int
) -> None:
    with started(zygote, tmp_path, "own values", before) as job:
        job.until(lambda s: s["step"] >= 2)
        job.hold(after)
        for text in job.until(lambda s: s["warnings"])["warnings"]:
            said = re.fullmatch(
                r"job\.state\.name differs between (\S+) \('(\S+)'\) and (\S+) \('(\S+)'\); using (\S+)\. "
                r"Compute it from job\.loss or job\.evaluations\.",
                text,
            )
            assert said is not None, "and not job.state.best, which comes from job.loss"
            assert said[1] == said[2] == said[5] != said[3] == said[4]
        job.finish()


def test_nobody_is_main_before_the_workers_have_met(zygote: Zygote, tmp_path: Path) -> None:
    with (
        started(zygote, tmp_path, "main before epochs") as job,
        pytest.raises(AssertionError, match=r"job\.is_main is known inside job\.epochs\(\) only"),
    ):
        job.until(lambda s: s["state"] == "finished")


def test_a_checkpoint_folder_that_is_gone_fails_the_job(zygote: Zygote, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    with started(zygote, tmp_path, "checkpoints", checkpoints=str(folder)) as job:
        job.until(lambda s: s["step"] >= 1)
        away, made = 0, False
        while not made:  # a checkpoint being written may create the folder again
            folder.rename(tmp_path / f"away{away}")
            away += 1
            with contextlib.suppress(FileExistsError):
                folder.touch(exist_ok=False)
                made = True
        with pytest.raises(
            AssertionError, match=r"the job has failed: Checkpoint of step \d+ failed: .*Not a dir"
        ):
            job.until(lambda s: s["state"] == "finished")


def test_reading_processes_end_with_their_trainer(zygote: Zygote, tmp_path: Path) -> None:
    """They hold its sockets: while they live, peers on other machines do not notice its end."""
    spec = {"logical": 0, "chance": False, "precision": None, "torch_watches_s": 3600}
    with Running(zygote, tmp_path, spec, script=SCRIPT.with_name("idioms.py")) as job:
        job.hold(2)
        job.until(lambda s: s["step"] >= 1)
        victim = job.member_pids()[1]
        readers = [int(pid) for pid in Path(f"/proc/{victim}/task/{victim}/children").read_text().split()]
        assert readers and all(Path(f"/proc/{pid}").exists() for pid in readers)
        os.kill(victim, signal.SIGKILL)
        until = time.monotonic() + 60  # torch's own check of their parent is off: see `spec`
        while any(Path(f"/proc/{pid}").exists() for pid in readers):
            assert time.monotonic() < until, "the reading processes outlive their trainer"
            time.sleep(0.02)
        job.finish()


def test_a_reading_process_whose_trainer_died_first_ends_at_once() -> None:
    """If the trainer dies between the fork and the request for a death signal, no signal comes."""

    def orphan() -> None:
        os.getppid = lambda: 1
        _die_with_the_trainer(0)
        os._exit(7)

    process = multiprocessing.get_context("fork").Process(target=orphan)
    process.start()
    process.join(60)
    assert process.exitcode == 1


def test_a_reading_process_obeys_sigterm_of_its_trainer_only() -> None:
    """A SIGTERM to the process group asks the trainer to leave, which still needs its batches."""
    here, there = multiprocessing.Pipe()

    def reader() -> None:
        _die_with_the_trainer(0)
        there.send("ready")
        there.send(there.recv())

    process = multiprocessing.get_context("fork").Process(target=reader)
    process.start()
    assert here.recv() == "ready"
    subprocess.run(["kill", "-TERM", str(process.pid)], check=True)
    here.send("still here")
    assert here.recv() == "still here"
    process.join(60)
    process = multiprocessing.get_context("fork").Process(target=reader)
    process.start()
    assert here.recv() == "ready"
    process.terminate()
    process.join(60)
    assert process.exitcode == 0


def test_a_group_whose_building_fails_is_dropped_with_its_threads() -> None:
    """Also while a reference to the error is kept: see Inside."""

    class Peerless(dist.HashStore):  # type: ignore[misc]  # torch is not read by the type checker
        def get(self, key: str) -> bytes:
            if key == "listen/0":
                raise GenerationOver("w1 is gone")
            return bytes(super().get(key))

    def threads() -> int:
        return len(os.listdir("/proc/self/task"))

    _gloo(dist.HashStore(), 0, 1, "127.0.0.1").close()  # what torch keeps from the first one on
    before = threads()
    with pytest.raises(GenerationOver) as kept:
        _gloo(Peerless(), 0, 1, "127.0.0.1")
    assert threads() == before, kept.value

"""Devices that a running attempt gives back: free once no process of it is on them, whatever it reports."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pliant.model.fact import AttemptResized
from pliant.model.order import Resize
from pliant.model.workload import Launch
from tests.engines.contract import GPUS, GRACE, A, place
from tests.engines.local_rig import LocalRig, processes, until

ZERO, ONE = GPUS[0].uuid, GPUS[1].uuid

AGENT = """
echo $PLIANT_ATTEMPT >> {notes}
for gpu in $(echo $CUDA_VISIBLE_DEVICES | tr , ' '); do
    CUDA_VISIBLE_DEVICES=$gpu PLIANT_TRAIN_DEVICE=$gpu {worker} &
    echo $! > $PLIANT_ATTEMPT_DIR/worker-$gpu
done
echo $$ > $PLIANT_ATTEMPT_DIR/agent-pid
trap 'exit 0' TERM
while :; do CUDA_VISIBLE_DEVICES= sleep 1000 & wait $!; done
"""


class ResizingRig(LocalRig):
    """A rig whose task is a shell in the role of an agent, with one process for each of its first GPUs."""

    def agent(self, worker: str = "sleep 1000", **more: object) -> Launch:
        script = AGENT.format(notes=self.notes, worker=worker)
        # A short grace: a child misses a signal that comes between its fork and its exec.
        return Launch("ubuntu", ("sh", "-c", script), **{"grace": 5_000, **more})

    def begin(self, worker: str = "sleep 1000") -> None:
        self.run(A, self.agent(worker), place(0, 1))
        until(lambda: self.pid("agent-pid"), "the agent begins")
        until(lambda: all(map(self.has_begun, (ZERO, ONE))), "its workers begin")

    def pid(self, name: str) -> int:
        path = self.folder(A) / name
        return int(path.read_text() or 0) if path.exists() else 0

    def worker(self, uuid: str) -> int:
        return self.pid(f"worker-{uuid}")

    def has_begun(self, uuid: str) -> bool:
        """True after its exec: before, it is a copy of the agent with all devices."""
        environ = Path(f"/proc/{self.worker(uuid)}/environ").read_bytes().split(b"\0")
        return f"CUDA_VISIBLE_DEVICES={uuid}".encode() in environ

    def register(self) -> None:
        self.engine.register(A, self.pid("agent-pid"))

    def shrink(self, *kept: int, grace: int = GRACE) -> None:
        self.engine.resize(Resize(A, place(*kept), grace, "decision-3", self.epoch))

    def sizes(self) -> list[int]:
        return [len(fact.shares) for fact in self.facts if isinstance(fact, AttemptResized)]

    def lives(self, pid: int) -> bool:
        return pid in processes(self.state, A)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ResizingRig]:
    rig = ResizingRig(tmp_path)
    rig.open()
    yield rig
    rig.clean()


def after_a_while(rig: ResizingRig) -> None:
    """Waits until the engine has looked several times: each look is an entry back from the strand."""
    looked = rig.engine._resizing
    seen: list[int] = []
    original = looked.users

    def users(*given):
        seen.append(1)
        return original(*given)

    looked.users = users
    until(lambda: len(seen) >= 3, "three looks")


def test_what_is_left_and_acknowledged_is_free_long_before_the_deadline(rig: ResizingRig) -> None:
    rig.begin()
    rig.register()
    rig.shrink(0)
    os.kill(rig.worker(ONE), signal.SIGTERM)
    until(lambda: not rig.lives(rig.worker(ONE)), "the worker ends")
    rig.engine.acknowledge(A, [ONE])
    until(rig.sizes, "it is free")
    assert rig.sizes() == [1] and rig.lives(rig.worker(ZERO))


def test_a_job_that_acknowledges_and_keeps_its_gpu_does_not_free_it(rig: ResizingRig) -> None:
    rig.begin()
    rig.register()
    rig.shrink(0)
    rig.engine.acknowledge(A, [ONE])
    after_a_while(rig)
    assert rig.sizes() == []
    os.kill(rig.worker(ONE), signal.SIGKILL)
    until(rig.sizes, "it is free once it is seen empty")


def test_at_the_deadline_its_worker_there_gets_sigterm(rig: ResizingRig) -> None:
    rig.begin()
    rig.register()
    rig.shrink(0, grace=200)
    rig.engine.acknowledge(A, [ONE])
    until(rig.sizes, "it is free")
    assert not rig.lives(rig.worker(ONE)) and rig.lives(rig.worker(ZERO)) and rig.lives(rig.pid("agent-pid"))


def test_and_then_sigkill(rig: ResizingRig) -> None:
    rig.begin("sh -c \"trap '' TERM; while :; do sleep 1; done\"")
    rig.register()
    until(lambda: b"trap" in Path(f"/proc/{rig.worker(ONE)}/cmdline").read_bytes(), "it ignores SIGTERM")
    rig.shrink(0, grace=200)
    rig.engine.acknowledge(A, [ONE])
    until(rig.sizes, "it is free")
    assert not rig.lives(rig.worker(ONE)) and rig.lives(rig.worker(ZERO))


def test_a_job_that_never_answers_is_stopped_and_restarted(rig: ResizingRig) -> None:
    """Its workers there are ended; it might start others, so the attempt is, too: checkpoint and restart."""
    rig.begin()
    rig.register()
    rig.shrink(0, grace=100)
    assert rig.end(A).stopped
    assert rig.sizes() == []


def test_one_without_an_agent_is_stopped_at_the_deadline(rig: ResizingRig) -> None:
    rig.begin()
    rig.shrink(0, grace=100)
    assert rig.end(A).stopped
    assert rig.sizes() == []


def test_an_agent_of_another_attempt_is_none(rig: ResizingRig) -> None:
    rig.begin()
    rig.engine.register(A, os.getpid())
    rig.shrink(0, grace=100)
    assert rig.end(A).stopped


def test_what_the_driver_counts_is_used_whoever_it_is(tmp_path: Path) -> None:
    users: dict[str, list[int]] = {}
    rig = ResizingRig(tmp_path, occupants=lambda: users)
    rig.open()
    try:
        rig.begin()
        rig.register()
        users[ONE] = [rig.pid("agent-pid")]
        rig.shrink(0)
        os.kill(rig.worker(ONE), signal.SIGKILL)
        rig.engine.acknowledge(A, [ONE])
        after_a_while(rig)
        assert rig.sizes() == [], "the agent itself has memory there"
        users.clear()
        until(rig.sizes, "it is free")
    finally:
        rig.clean()


def test_growing_is_confirmed_at_once_and_the_newest_order_counts(rig: ResizingRig) -> None:
    rig.begin()
    rig.register()
    rig.shrink(0)
    rig.shrink(0, 1)
    until(rig.sizes, "it has both")
    rig.engine.acknowledge(A, [ONE])
    rig.shrink(0, 1, 2)
    until(lambda: len(rig.sizes()) == 2, "it grows")
    assert rig.sizes() == [2, 3] and rig.lives(rig.worker(ONE))


def test_a_new_server_goes_on_waiting(rig: ResizingRig) -> None:
    rig.begin()
    rig.register()
    rig.shrink(0)
    until((rig.folder(A) / "agent.json").exists, "it is on disk")
    rig.drop()
    rig.epoch += 1
    rig.open()
    rig.shrink(0)
    rig.engine.acknowledge(A, [ONE])
    after_a_while(rig)
    assert rig.sizes() == []
    os.kill(rig.worker(ONE), signal.SIGKILL)
    until(rig.sizes, "it is free")
    assert rig.lives(rig.worker(ZERO))

"""The quickstart on pliant.train: its GPUs change while it runs, and its losses equal those of NumPy."""

import re

import pytest

from examples.walkthrough import Stage
from tests.e2e.witness import client, losses, reference, until

PATIENCE = 240.0  # seconds; on a busy machine torch alone takes ten to import
IMAGE = "gcr.io/run-ai-demo/quickstart-elastic"


def typed(stage: Stage, command: str) -> None:
    done = stage.run(command)
    assert done.code == 0, f"{command}: {done.said}"


@pytest.mark.timeout(900)
def test_it_is_resized_live_and_loses_no_step(stage: Stage) -> None:
    typed(stage, "pliant up --simulate 1x2")
    typed(stage, "pliant project create team-a --quota 2")
    typed(stage, "runai config project team-a")
    typed(stage, f"pliant submit live -i {IMAGE} -g 1 --elastic -e QUICKSTART_PRINT_EVERY=1")
    with client(stage) as api:
        identity = next(item["id"] for item in api.workloads() if item["name"] == "live")

        def trains_on(workers: int) -> bool:
            said = next(item["progress"] for item in api.workloads() if item["id"] == identity)
            return said is not None and said["state"] == "training" and said["world"] == workers

        until(lambda: trains_on(2), "two workers", PATIENCE)
        typed(stage, "pliant submit filler -i ubuntu -g 1 --interactive --command -- sleep infinity")
        until(lambda: trains_on(1), "one worker", PATIENCE)
        typed(stage, "pliant delete filler")
        until(lambda: trains_on(2), "two workers again", PATIENCE)
        seen = len(losses(stage, identity)[0])
        until(lambda: len(losses(stage, identity)[0]) > seen + 1, "a step after that", PATIENCE)
        attempts = losses(stage, identity)
        assert len(attempts) == 1, "the same process all the time"
        printed = attempts[0][:-1]  # the last line may not be whole yet
        assert [step for step, _ in printed] == list(range(len(printed))), "not a step lost"
        whole = reference(len(printed))
        assert all(abs(loss - whole[step]) < 1e-6 for step, loss in printed)
        (log,) = (stage.state / "attempts" / identity).glob("*/1/log")
        sizes = [int(gpus) for gpus in re.findall(r"gpus=(\d+)", log.read_text("utf-8"))]
        changes = [size for i, size in enumerate(sizes) if i == 0 or size != sizes[i - 1]]
        assert changes[-3:] == [2, 1, 2], "one of the two may have begun alone"
        typed(stage, "pliant delete live")

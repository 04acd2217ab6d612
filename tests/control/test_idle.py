"""Idle GPUs: found by a check each minute, with a warning at half the limit and eviction at the limit."""

import random
from pathlib import Path

import pytest

from pliant.control.ports import GpuLoad, Load
from pliant.control.state.idle import GAP, Spans
from pliant.control.usecases.changes import QueueChange
from pliant.control.usecases.idling import limit_of
from pliant.model.event import EventKind
from pliant.model.notice import IDLE, MAIL, Subscription
from pliant.model.sample import MINUTE, Number, Sample
from pliant.model.workload import Desired
from tests.control.stage import Stage
from tests.house.seeds import seed_or

SESSIONS, MINUTES = 1000, 240
WARNED = 30  # minutes without work


def looked(identity: str, now: int, busy: int, memory: int = 0) -> Sample:
    """`busy` in percent, `memory` in bytes."""
    numbers = (
        Number("GPU_UTILIZATION_PER_GPU", "task-0 GPU-0", busy * 1000),
        Number("GPU_MEMORY_USAGE_BYTES_PER_GPU", "task-0 GPU-0", memory * 1000),
    )
    return Sample(f"workload:{identity}", MINUTE, now, numbers)


def session(chance: random.Random) -> list[tuple[bool, int, int]]:
    """(True if its owner works, percent, bytes) of each minute: training, interactive work, or nothing."""
    made: list[tuple[bool, int, int]] = []
    memory = chance.randrange(2, 60) * 2**30
    while len(made) < MINUTES:
        length, kind = (
            chance.randrange(3, 120),
            chance.choice(("training", "interactive", "nothing", "nothing")),
        )
        memory = chance.randrange(2, 60) * 2**30 if chance.random() < 0.3 else memory
        pause = 0
        for _ in range(length):
            busy = chance.choice((0, 0, 0, 1, 2)) if chance.random() > 0.01 else 4  # a monitoring tool
            if kind == "training":
                pause = chance.randrange(1, 12) if not pause and chance.random() < 0.01 else max(0, pause - 1)
                busy = busy if pause else chance.randrange(20, 101)
            elif kind == "interactive" and chance.random() < 0.3:  # a cell runs at the sampled instant
                busy = chance.randrange(6, 101)
            made.append((kind != "nothing", busy, memory))
    return made[:MINUTES]


def test_a_thousand_sessions_with_known_idle_spans() -> None:
    chance = random.Random(seed_or(4711))
    sessions = [session(chance) for _ in range(SESSIONS)]
    spans, warned = Spans(), dict[int, bool]()
    right = wrong = long = found = 0
    quiet = [0] * SESSIONS  # true minutes without work
    for minute in range(MINUTES):
        now = minute * MINUTE
        samples = [looked(str(at), now, *one[minute][1:]) for at, one in enumerate(sessions)]
        idle = spans.look(samples, now)
        for at, one in enumerate(sessions):
            quiet[at] = 0 if one[minute][0] else quiet[at] + 1
            for_long = idle[str(at)] >= WARNED * MINUTE
            if for_long and not warned.get(at):  # a pause at the end of the work may count too
                right, wrong = (right + 1, wrong) if quiet[at] >= WARNED // 2 else (right, wrong + 1)
            if quiet[at] == WARNED + 2:  # a sample may miss its first minute
                long, found = long + 1, found + for_long
            warned[at] = for_long
    assert right + wrong > 500 and long > 500
    print(f"{right} of {right + wrong} warnings right, {found} of {long} spans found")
    assert right >= 0.99 * (right + wrong)
    assert found >= 0.95 * long


def test_one_look_that_sees_work_or_another_program_ends_a_span() -> None:
    spans = Spans()
    for minute in range(10):
        idle = spans.look([looked("w", minute * MINUTE, 2, 2**30)], minute * MINUTE)
    assert idle == {"w": 9 * MINUTE}
    assert spans.look([looked("w", 10 * MINUTE, 2, 3 * 2**30)], 10 * MINUTE) == {"w": 0}, "memory has changed"
    assert spans.look([looked("w", 11 * MINUTE, 2, 3 * 2**30)], 11 * MINUTE) == {"w": MINUTE}
    assert spans.look([looked("w", 12 * MINUTE, 40, 3 * 2**30)], 12 * MINUTE) == {"w": 0}
    late = 13 * MINUTE + GAP
    assert spans.look([looked("w", late, 0, 3 * 2**30)], late) == {"w": 0}, "who knows what was in between"
    nothing = Sample("workload:w", MINUTE, late, (Number("GPU_ALLOCATION", "", 1000),))
    assert spans.look([nothing], late) == {}, "what cannot be measured is not idle"


def pass_minutes(stage: Stage, count: int, busy: int) -> None:
    for _ in range(count):
        stage.run(MINUTE)
        gpus = [gpu.uuid for view in stage.loop.board.nodes for gpu in view.node.gpus]
        stage.service.series.take(Load(gpus={uuid: GpuLoad(busy, 2**30) for uuid in gpus}), {})
    stage.run()


def kinds(stage: Stage, identity: str) -> list[EventKind]:
    return [event.kind for _, event in stage.service.history(identity)]


def test_a_limit_of_a_department_holds_below_it_unless_a_lower_one_says_another(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    service = stage.service
    above = service.create_department(QueueChange(name="above"), "test").id
    below = service.create_department(QueueChange(name="below", department="above"), "test").id
    stage.project("team", 2, department="below")
    job = stage.submit("job", project="team")
    stage.run()

    def limit() -> int:
        return stage.loop.look(lambda state: limit_of(job, state))

    assert limit() == 0
    service.update_department(above, QueueChange(limits={"training_idle": 60 * MINUTE}), "test")
    assert limit() == 60 * MINUTE
    service.update_department(below, QueueChange(limits={"training_idle": 90 * MINUTE}), "test")
    assert limit() == 90 * MINUTE


@pytest.mark.parametrize("where", ["project", "department"])
def test_the_owner_is_told_at_half_the_limit_and_the_job_is_suspended(tmp_path: Path, where: str) -> None:
    stage = Stage(tmp_path)
    stage.project("team", 2)
    service = stage.service
    limits = QueueChange(limits={"training_idle": 60 * MINUTE})
    (project,) = (row.id for row in stage.loop.world.projects.values() if row.name == "team")
    if where == "project":
        service.update_project(project, limits, "test")
    else:
        service.update_department(stage.loop.world.projects[project].department, limits, "test")
    service.notices.subscribe(Subscription("", "me", MAIL, "me@example.org", (IDLE,)))
    job, desk = stage.submit("job", project=project), stage.submit("desk", project=project, interactive=True)
    pass_minutes(stage, 5, busy=90)
    pass_minutes(stage, 29, busy=0)
    assert EventKind.IDLE not in kinds(stage, job)
    pass_minutes(stage, 20, busy=1)
    assert kinds(stage, job).count(EventKind.IDLE) == 1, "told once for one span"
    (notice,) = service.notices.pending()
    assert (notice.event, notice.name, "After 60 minutes" in notice.message) == (IDLE, "job", True), notice
    pass_minutes(stage, 1, busy=50)
    pass_minutes(stage, 59, busy=0)
    assert kinds(stage, job).count(EventKind.IDLE) == 2, "another span"
    assert stage.view(job).workload.desired is Desired.RUNNING
    pass_minutes(stage, 1, busy=0)
    assert stage.view(job).workload.desired is Desired.STOPPED
    (said,) = (event.message for _, event in service.history(job) if event.kind is EventKind.SUSPENDED)
    assert said == "Suspended: its GPUs did nothing for 60 minutes. Resume it: pliant resume job"
    assert stage.view(desk).workload.desired is Desired.RUNNING, "its kind has no limit here"
    service.resume(job, "me")
    pass_minutes(stage, 29, busy=0)
    assert stage.view(job).workload.desired is Desired.RUNNING, "it begins anew"

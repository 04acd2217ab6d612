"""Bookings through a loop with its store: made, refused, begun, kept over restarts, ended, deleted."""

from dataclasses import replace
from pathlib import Path

import pytest

from pliant.control.errors import BadRequest, Conflict, NotFound
from pliant.control.state.draft import Draft
from pliant.model.booking import Booking, Stage
from tests.control.stage import Stage as Server

MINUTE = 60_000
NODE = "sim-0"


def book(
    stage: Server,
    name: str,
    project: str,
    begins: int,
    ends: int,
    gpus: int = 0,
    *,
    nodes: tuple[str, ...] = (),
    within_quota: bool = False,
) -> Booking:
    """Books GPUs; `begins` and `ends` in minutes from now."""
    now = stage.timeline.now()
    identity = next((it.id for it in stage.loop.world.projects.values() if it.name == project), project)
    wanted = Booking("", name, now + begins * MINUTE, now + ends * MINUTE, (), identity, user="me")
    return stage.service.bookings.book(
        wanted, gpus=gpus, pool="default", nodes=nodes, within_quota=within_quota
    )


def maintain(stage: Server, name: str, begins: int, ends: int) -> Booking:
    return book(stage, name, "", begins, ends, nodes=(NODE,))


def reason(stage: Server, job: str) -> str:
    return stage.loop.state.verdicts.reason(job).text(stage.timeline.now())


def test_a_reservation_from_its_making_to_its_end(stage: Server) -> None:
    stage.project("a", 2)
    stage.project("b", 2)
    lent = stage.submit("x", 2, project="a")
    stage.run(1000)
    made = book(stage, "demo", "b", 10, 20, 1)
    assert made.places == ((NODE, 1),)
    stage.run(10 * MINUTE)
    assert stage.phase(lent) == "Pending"
    assert reason(stage, lent) == f"Needs 2 GPUs; 1 GPU is booked on {NODE} for project b (10m left)."
    own = stage.submit("y", 1, project="b")
    stage.run(1000)
    assert stage.phase(own) == "Running"
    stage.service.delete(own, "me")
    stage.run(10 * MINUTE)
    assert stage.phase(lent) == "Running"
    (row,) = stage.store.load().of(Booking)
    assert row.stage is Stage.ENDED
    told = [event.message for _, event in stage.service.history("booking/demo")]
    assert told == [
        f"me booked demo: 1 on {NODE}.",
        "Booking demo has begun.",
        "Booking demo has ended.",
    ]


def test_it_outlives_the_server(stage: Server) -> None:
    stage.project("b", 2)
    maintain(stage, "fix", 10, 20)
    stage.reopen()
    job = stage.submit("x")
    stage.run(9 * MINUTE)
    assert stage.phase(job) == "Running"
    stage.run(MINUTE)
    assert stage.phase(job) == "Pending"
    stage.reopen()
    stage.run(MINUTE)
    assert stage.phase(job) == "Pending"
    assert reason(stage, job) == f"Needs 1 GPU; {NODE} is under maintenance (9m left)."
    stage.run(9 * MINUTE)
    assert stage.phase(job) == "Running"


def test_a_clock_that_is_set_back_undoes_nothing(stage: Server) -> None:
    """A begun booking lasts to its end and an ended one does not begin again, also after a restart."""
    stage.project("a", 2)
    maintain(stage, "fix", 0, 10)
    job = stage.submit("x", project="a")
    stage.run(MINUTE)
    assert stage.phase(job) == "Pending"
    stage.timeline._now -= 30 * MINUTE
    stage.reopen()
    stage.run(MINUTE)
    assert stage.phase(job) == "Pending"
    stage.run(40 * MINUTE)
    assert stage.phase(job) == "Running"
    stage.timeline._now -= 35 * MINUTE
    stage.reopen()
    stage.run(10 * MINUTE)
    assert stage.phase(job) == "Running"


def test_it_is_forgotten_in_time(stage: Server) -> None:
    maintain(stage, "fix", 0, 1)
    stage.run(2 * MINUTE)
    stage.run(stage.loop.state.settings.keep_history)
    assert stage.store.load().of(Booking) == ()


def test_what_is_refused(stage: Server) -> None:
    stage.project("a", 2)
    stage.project("b", 1)
    for begins, ends, said in [
        (10, 10, "The booking ends before it starts."),
        (-20, -10, "The booking ends in the past."),
        (-20, 10, "The booking starts in the past."),
    ]:
        with pytest.raises(BadRequest) as error:
            book(stage, "x", "b", begins, ends, 1)
        assert error.value.message == said
    with pytest.raises(Conflict) as refused:
        book(stage, "x", "b", 10, 20, 3)
    assert refused.value.message == "3 GPUs cannot be booked: there are 2."
    with pytest.raises(Conflict) as refused:
        book(stage, "x", "b", 10, 20, 2, within_quota=True)
    assert refused.value.message == "Project b has a quota of 1 GPU: 2 GPUs more cannot be booked."
    with pytest.raises(NotFound):
        book(stage, "x", "b", 10, 20, 1, nodes=("moon",))
    with pytest.raises(NotFound):
        book(stage, "x", "nobody", 10, 20, 1)
    book(stage, "first", "a", 10, 20, 1)
    stage.submit("fixed", 1, project="a", preemptible=False)
    stage.run(1000)
    with pytest.raises(Conflict) as refused:
        book(stage, "x", "b", 15, 30, 2)
    assert refused.value.message == (
        "Only 1 of 2 GPUs can be booked then. In the way: booking first and non-preemptible job fixed "
        "(project a)."
    )
    with pytest.raises(Conflict) as refused:
        maintain(stage, "fix", 30, 40)
    assert refused.value.message == (
        f"Maintenance of {NODE} is not possible then. In the way: non-preemptible job fixed (project a)."
    )


def test_a_quota_bounds_what_is_booked_at_any_one_time(stage: Server) -> None:
    stage.project("b", 1)
    book(stage, "now", "b", 0, 10, 1, within_quota=True)
    with pytest.raises(Conflict) as refused:
        book(stage, "x", "b", 9, 40, 1, within_quota=True)
    assert refused.value.message == (
        "Project b has a quota of 1 GPU and has booked 1 GPU of it: 1 GPU more cannot be booked."
    )
    book(stage, "next", "b", 10, 20, 1, within_quota=True)
    book(stage, "later", "b", 30, 40, 1, within_quota=True)
    with pytest.raises(Conflict):
        book(stage, "x", "b", 20, 31, 1, within_quota=True)
    book(stage, "between", "b", 20, 30, 1, within_quota=True)


def test_bookings_one_after_the_other_are_not_added_up(tmp_path: Path) -> None:
    stage = Server(tmp_path, "1x4")
    stage.project("b", 2)
    for number in range(4):
        book(stage, f"short-{number}", "b", 10 * number, 10 * number + 10, 1, within_quota=True)
    book(stage, "long", "b", 0, 40, 1, within_quota=True)
    with pytest.raises(Conflict) as refused:
        book(stage, "x", "b", 35, 50, 1, within_quota=True)
    assert refused.value.message.startswith("Project b has a quota of 2 GPUs and has booked 2 GPUs of it:")


def test_with_a_project_its_bookings_go(stage: Server) -> None:
    stage.project("b", 2)
    book(stage, "demo", "b", 0, 20, 2)
    job = stage.submit("x")
    stage.run(1000)
    assert stage.phase(job) == "Pending"
    stage.service.delete_project("b", "me")
    stage.run(1000)
    assert stage.phase(job) == "Running"
    assert stage.store.load().of(Booking) == ()


def test_a_node_that_is_gone_during_a_booking(stage: Server) -> None:
    stage.project("b", 2)
    book(stage, "demo", "b", 0, 20, 2)

    def lose(draft: Draft) -> None:
        stage.loop._facts.lose_node(NODE, draft)

    stage.loop.call(lose)
    stage.run(MINUTE)
    assert stage.loop.world.nodes == {}
    assert [row.places for row in stage.service.board.bookings] == [((NODE, 2),)]
    stage.service.bookings.cancel("demo", "me")
    assert stage.service.board.bookings == ()


def test_a_row_of_an_older_release_says_it_is_planned() -> None:
    row = Booking("1", "x", 5, 9, ())
    assert [row.stage_at(at).value for at in (4, 5, 8, 9)] == ["Planned", "Active", "Active", "Ended"]
    assert replace(row, stage=Stage.ACTIVE).stage_at(1) is Stage.ACTIVE
    assert replace(row, stage=Stage.ENDED).stage_at(6) is Stage.ENDED

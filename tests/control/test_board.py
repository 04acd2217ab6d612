"""The board that readers see: updated change by change, it equals one built fresh."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from pliant.control.board import publisher
from pliant.control.board.publisher import Publisher
from pliant.control.board.view import Board
from pliant.control.state import contradictions
from pliant.control.state.facts import FactBook
from pliant.model.workload import Desired
from tests.control.stage import Stage


def made_anew(stage: Stage) -> Board:
    """The board of a publisher for which every row has changed."""
    state = stage.loop.state
    state.touched |= set(state.world.workloads)
    state.shaken |= set(state.world.nodes)
    state.moved = state.reshaped = True
    one = Publisher(state)
    one.publish(stage.loop.board.at, stage.loop.board.cycle_us)
    return one.board


def check(stage: Stage) -> None:
    kept, anew = stage.loop.board, made_anew(stage)
    for what in ("workloads", "nodes", "pools", "departments", "projects", "queue", "cycles"):
        assert getattr(kept, what) == getattr(anew, what), what
    serials = [view.workload.serial for view in kept.workloads.standing]
    assert serials == sorted(serials) and list(kept.queue) == list(anew.queue)
    assert {it.workload.id for it in kept.workloads.holding} == {
        it.workload.id for it in kept.workloads.values() if it.gpu
    }
    views = list(kept.workloads.values())
    for name in {"nobody", *(view.workload.name for view in views)}:
        assert kept.workloads.named(name) == [view for view in views if view.workload.name == name]
    names = stage.loop.state.names
    rows = [row for row in stage.loop.world.workloads.values() if row.desired is not Desired.DELETED]
    assert {(project, name) for project in names for name in names[project]} == {
        (row.project, row.name) for row in rows
    }


def test_a_view_that_comes_late_stands_where_it_was_submitted(stage: Stage) -> None:
    """A restored workload keeps its serial, and lists are in the order of submission."""
    first, second = stage.submit("first", 1), stage.submit("second", 1)
    views, verdicts = stage.loop.board.workloads, stage.loop.state.verdicts
    late = views.changed({first: None}, verdicts).changed({first: views[first]}, verdicts)
    assert [view.workload.id for view in late.standing] == [first, second]


@pytest.mark.parametrize("seed", range(5))
def test_kept_up_to_date_it_equals_one_made_anew(tmp_path: Path, seed: int) -> None:
    draw, stage = random.Random(seed), Stage(tmp_path, "2x2")
    stage.project("a", 1)
    stage.project("b", 1)
    names: list[str] = []
    for number in range(30):
        match draw.randrange(5):
            case 0 | 1:
                more = {"elastic": True} if draw.random() < 0.3 else {}
                life = {"virtual": {"seconds": draw.randrange(1, 5)}} if draw.random() < 0.5 else {}
                names.append(
                    stage.submit(f"w{number // 2}", draw.randint(1, 2), "ab"[number % 2], **more, **life)
                )
            case 2 if names:
                stage.service.delete(names.pop(draw.randrange(len(names))), "me")
            case 3:
                stage.service.cordon(draw.choice(sorted(stage.loop.world.nodes)), draw.random() < 0.5, "me")
            case _:
                stage.run(draw.randrange(3000))
        check(stage)
    stage.store.close()


def test_a_lost_node_leaves_it(stage: Stage) -> None:
    (name,) = stage.loop.world.nodes
    stage.machines.lose_node(name)
    stage.run()
    assert stage.loop.board.nodes == ()


def test_a_new_place_in_the_queue_is_no_change_for_those_who_watch(stage: Stage) -> None:
    stage.submit("holds-all", 2)
    first, second = stage.submit("first", 2), stage.submit("second", 1)
    assert tuple(stage.loop.board.queue) == (first, second)
    before = stage.loop.board.version
    stage.service.delete(first, "me")
    _, changed = stage.service.watch(before, 0)
    assert tuple(stage.loop.board.queue) == (second,)
    assert changed == {first}


def test_the_queue_holds_what_is_pending_and_nothing_that_runs(stage: Stage) -> None:
    """An elastic job that runs below its request wants more but is not pending."""
    stage.submit("holds-one", 1)
    elastic, waits = stage.submit("elastic", 2, elastic=True), stage.submit("waits", 2)
    stage.run()
    reason = stage.view(elastic).reason
    assert stage.phase(elastic) == "Running" and reason is not None and reason.code == "no-capacity"
    assert tuple(stage.loop.board.queue) == (waits,)
    stage.service.suspend(waits, "me")
    stage.run()
    assert tuple(stage.loop.board.queue) == ()


def test_places_are_counted_without_what_competes_no_more_though_the_verdicts_have_it(stage: Stage) -> None:
    """Until a late plan arrives, the verdicts are older than the rows."""
    waiting = [stage.submit(f"job-{number}", 2) for number in range(5)][1:]
    board, verdicts = stage.loop.board, stage.loop.state.verdicts
    all_of_them = {name: at for at, name in enumerate(waiting, 1)}
    assert dict(board.queue) == all_of_them
    view = board.workloads[waiting[2]]
    held = replace(view, workload=replace(view.workload, held="booked"))
    views = board.workloads.changed({waiting[0]: None, waiting[2]: held}, verdicts)
    assert dict(views.places) == {waiting[1]: 1, waiting[3]: 2}
    assert len(views.places) == 2
    assert dict(board.queue) == all_of_them, "an older board keeps its own"
    stage.service.delete(waiting[0], "me")
    stage.run()
    assert dict(stage.loop.board.queue) == {name: at for at, name in enumerate(waiting[1:], 1)}


def test_what_only_machines_and_owners_change_is_not_looked_at_again(tmp_path, monkeypatch):
    """Submitted and ended jobs change fair shares, but no node, quota or limit."""
    stage = Stage(tmp_path, "1x4")
    looks = []
    for module, name in ((contradictions, "faults"), (publisher, "broken")):
        kept = getattr(module, name)
        monkeypatch.setattr(
            module,
            name,
            lambda world, *known, kept=kept, name=name: looks.append(name) or kept(world, *known),
        )
    limit = FactBook._limit
    monkeypatch.setattr(FactBook, "_limit", lambda self, *of: looks.append("limit") or limit(self, *of))
    stage.project("team-a", 3)
    assert looks.count("faults") == looks.count("broken") == 1, "for the project"
    looks.clear()
    for number in range(5):
        stage.submit(f"job-{number}", 1, "team-a")
        stage.run(500)
    assert not looks
    stage.project("team-b", 2)
    assert set(looks) == {"faults", "broken"}
    assert stage.service.board.promises, "5 GPUs of 4"

"""Scheduling settings at run time, and rows that contradict the rest."""

from dataclasses import replace

import pytest

from pliant.control.board.view import CLUSTER
from pliant.control.errors import BadRequest
from pliant.control.state.setting import SETTINGS, changed, read, restored
from pliant.model.fact import NodeSeen
from pliant.sched.settings import Settings
from tests.control.stage import FailingStore, Stage


def words(stage: Stage) -> list[str]:
    return [event.message for _, event in stage.service.history(CLUSTER)]


def test_a_setting_holds_at_once_and_after_a_restart(stage: Stage) -> None:
    stage.service.tune({"victims": "youngest", "stale_grace": -1}, "ann")
    assert stage.loop.state.settings == Settings(victims="youngest", stale_grace=-1)
    assert stage.service.board.settings.victims == "youngest"
    stage.reopen()
    assert stage.loop.state.settings == Settings(victims="youngest", stale_grace=-1)
    stage.service.tune({"stale_grace": None}, "bob")
    assert stage.loop.state.settings == Settings(victims="youngest")
    assert words(stage) == [
        "ann set victims youngest (was least), stale-grace for ever (was 1m0s).",
        "bob set stale-grace 1m0s (was for ever).",
    ]


def test_what_changes_nothing_is_no_event(stage: Stage) -> None:
    stage.service.tune({"victims": "least"}, "ann")
    assert words(stage) == []


def test_a_setting_that_could_not_be_recorded_does_not_hold(stage: Stage) -> None:
    failing = FailingStore(stage.store)
    stage.loop.store = failing
    failing.error = OSError("the disk is full")
    with pytest.raises(Exception, match="could not be recorded"):
        stage.service.tune({"victims": "youngest"}, "ann")
    failing.error = None
    stage.run()
    assert stage.loop.state.settings == Settings()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"victims": "oldest"}, "victims cannot be 'oldest'. It is least or youngest."),
        (
            {"stale_grace": -2},
            "stale-grace cannot be -2ms. It is 'for-ever', or 0 or more, 8784h0m0s at most.",
        ),
        ({"churn_window": 0}, "churn-window cannot be 0s. It is 1s or more"),
        ({"grow_every": 600_000, "grow_wait_max": 60_000}, "grow-wait-max 1m0s is below grow-every 10m0s."),
        ({"past_use_window": 0}, "past-use-window cannot be 0s. It is 1m0s or more"),
        ({"consolidation_victims": "many"}, "consolidation cannot be many."),
        ({"past_use_window": 60_000}, "past-use-half-life 24h0m0s is longer than past-use-window 1m0s."),
        ({"retry_max": 5_000}, "retry-max 5s is below retry-base 10s."),
    ],
)
def test_what_cannot_be(change: dict[str, int | str], said: str) -> None:
    with pytest.raises(BadRequest) as error:
        changed(Settings(), change)
    assert str(error.value).startswith(said)


def test_every_built_in_value_is_one_that_may_be_set() -> None:
    for setting in SETTINGS:
        setting.check(getattr(Settings(), setting.field))
        assert setting.show(getattr(Settings(), setting.field))


def test_what_a_newer_version_kept_is_left_out() -> None:
    assert restored(Settings(), '{"victims": "youngest", "telepathy": 3}') == Settings(victims="youngest")


def later(stage: Stage) -> None:
    """Lets time pass for several checks. Not `run`, which asserts that nothing contradicts."""
    for _ in range(3):
        stage.timeline.advance(stage.timeline.now() + 20_000)
        stage.loop.settle()


def test_contradictions_are_told_once_and_the_rest_is_scheduled(stage: Stage) -> None:
    runs = stage.submit("runs")
    [node] = (state.row for state in stage.loop.world.nodes.values())
    stage.loop.post(NodeSeen(replace(node, cpu=100)))
    later(stage)
    [fault] = stage.service.board.faults
    assert fault == f"node {node.name} is over-full: 1000 of 100 millicores are claimed"
    waits = stage.submit("waits")
    later(stage)
    assert (stage.phase(runs), stage.phase(waits)) == ("Running", "Pending")
    stage.loop.post(NodeSeen(node))
    stage.run()
    assert (stage.phase(waits), stage.service.board.faults) == ("Running", ())
    assert words(stage) == [f"Set aside: {fault}.", f"No longer so: {fault}."]


@pytest.mark.parametrize(
    ("name", "typed", "field", "value"),
    [
        ("stale-grace", "5m", "stale_grace", 300_000),
        ("stale-grace", "never", "stale_grace", -1),
        ("past-use", "1.5", "past_use", 1500),
        ("past-use", "off", "past_use", 0),
        ("reservation", "16", "reservation", 16_000),
        ("churn-budget", "-1", "churn_budget", -1),
        ("churn-budget", "no-bound", "churn_budget", -1),
        ("consolidation", "0", "consolidation_victims", 0),
        ("victims", "youngest", "victims", "youngest"),
        ("ageing", None, "ageing", None),
    ],
)
def test_as_people_type_it(name: str, typed: str | None, field: str, value: int | str | None) -> None:
    assert read({name: typed}) == {field: value}


@pytest.mark.parametrize(
    ("name", "typed", "said"),
    [
        ("stale-grase", "5m", "There is no scheduling setting 'stale-grase'. Did you mean stale-grace?"),
        ("telepathy", "on", "There is no scheduling setting 'telepathy'. There are: consolidation, victims"),
        ("ageing", "soon", "ageing cannot be 'soon'. Give a time such as 90s or 5m, or 'off'."),
        ("churn-budget", "few", "churn-budget cannot be 'few'. Give a whole number, or 'no-bound'."),
        ("past-use", "0.0001", "past-use cannot be '0.0001'. Give a number such as 1 or 0.5"),
    ],
)
def test_what_cannot_be_read(name: str, typed: str, said: str) -> None:
    with pytest.raises(BadRequest) as error:
        read({name: typed})
    assert str(error.value).startswith(said)

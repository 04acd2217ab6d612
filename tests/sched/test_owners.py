"""Parts of a GPU that belong to an account share a device only with parts of the same account."""

import pytest

from tests.sched.ticker import settled


def where(t, name):
    return [share.gpu for task in t.scene.tasks_of(name) if task.claims for share in task.claims.shares]


def test_only_parts_of_one_account_share_a_gpu():
    t = settled("n1:2", "a=2", "h1 a g0.3 by=ann", "h2 a g0.3 by=bob", "h3 a g0.3 by=bob", "h4 a g0.3 by=ann")
    assert where(t, "h1") == where(t, "h4") and where(t, "h2") == where(t, "h3") != where(t, "h1")


@pytest.mark.parametrize(("asked", "part"), [("g0.5", 500), ("m4Gi", 250)])
def test_the_second_account_waits_and_is_told_why(asked, part):
    t = settled("n1:1", "a=1", "h1 a g0.3 by=ann", f"h2 a {asked} by=bob")
    assert t.rows() == ["h1 Running 0.3 n1", "h2 Pending 0"]
    reason = t.verdict("h2").reason
    assert (reason.code, reason.asked, reason.gpus) == ("beside-others", part, 1)
    t.finish("h1")
    t.settle()
    assert list(t.running()) == ["h2"]


def test_a_project_that_owns_parts_is_told_so():
    t = settled(
        "n1:1", "a=1 b=1", "h1 a g0.3 by=project:a", "h2 b g0.3 by=project:b", "h3 a g0.3 by=project:a"
    )
    assert t.running() == {"h1": 0.3, "h3": 0.3}
    assert (t.verdict("h2").reason.code, t.verdict("h2").reason.whose) == ("beside-others", "project")


def test_who_has_no_room_anyhow_is_told_that():
    t = settled("n1:1", "a=1", "h1 a g0.7 by=ann", "h2 a g0.5 by=bob", "h3 a g0.2 by=ann")
    assert t.verdict("h2").reason.code == "no-capacity"
    assert t.running() == {"h1": 0.7, "h3": 0.2}


def test_a_part_without_an_owner_is_no_neighbour_of_one_that_has_one():
    t = settled("n1:1", "a=1", "h1 a g0.3", "h2 a g0.3 by=bob", "h3 a g0.3")
    assert list(t.running()) == ["h1", "h3"]


def test_what_is_reclaimed_is_all_of_the_other_account_and_nothing_of_ones_own():
    """b is due a GPU. The numbers leave room beside ann's part, but all of hers has to go."""
    jobs = ("a1 a g0.3 by=ann @n1.0", "a2 a g0.3 by=ann @n1.0", "a3 a g1 @n1.1", "a4 a g1 np @n1.2")
    t = settled("n1:3", "a=2 b=1", *jobs, "b1 b g0.5 by=bob np")
    assert t.running()["b1"] == 0.5
    gpus = {name: where(t, name) for name in t.running()}
    assert all(gpus[name] != gpus["b1"] for name in gpus if name != "b1")


def test_one_victim_is_enough_only_where_the_others_parts_are_its_own():
    jobs = ("a1 a g0.2 by=ann @n1.0", "a2 a g0.6 by=ann @n1.0")
    t = settled("n1:1", "a=0 b=1", *jobs, "b1 b g0.3 by=bob")
    assert t.running() == {"b1": 0.3}, "the larger part alone would make room by numbers"
    jobs = ("a1 b g0.2 by=bob np @n1.0",)
    t = settled("n1:1", "a=0 b=1", *jobs, "a2 a g0.6 by=bob", "b1 b g0.7 by=bob")
    assert t.running() == {"a1": 0.2, "b1": 0.7}


def test_a_part_that_fits_beside_no_other_account_is_not_taken_and_given_back_without_end():
    """high is above its department's share: a1 would take all from it, and low from a1."""
    t = settled(
        "n1:1 n2:1 n3:1", "d0/=1 d1/=1 d0/a=4 d1/b=2:w=0",
        "a2 a g0.5 by=ann @n2.0", "np b g0.3 x2 by=ann np @n2.0,n3.0", "a3 a g0.7 by=ann @n3.0",
        "low b g0.3 by=bob @n1.0", "a1 a g0.7", "high b g0.3 x3 p80 by=ann",
    )  # fmt: skip
    assert t.running() == {"a2": 0.5, "np": 0.6, "a3": 0.7, "low": 0.3} and not t.decisions(verb="evict")


def test_what_is_being_stopped_is_waited_for():
    t = settled("n1:1", "a=1", "h1 a g0.3 by=ann @n1", "h2 a g0.5 by=bob")
    t.delete("h1")
    t.cycle()
    assert t.rows("h2") == ["h2 Pending 0"], "hers is still there"
    t.settle()
    assert t.rows("h2") == ["h2 Running 0.5 n1"]

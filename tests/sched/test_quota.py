"""What quotas, limits and departments allow."""

from tests.sched.ticker import Ticker, settled
from tests.sched.worlds import world


def test_non_preemptible_inside_quota():
    t = settled("n1:4", "a=2", *(f"b{i} a g1 np" for i in range(3)), "pre a g1")
    assert t.rows() == ["b0 Running 1 n1", "b1 Running 1 n1", "b2 Pending 0", "pre Running 1 n1"]


def test_preemptible_use_leaves_quota_to_the_non_preemptible():
    """Preemptible work fills the quota; against it a non-preemptible job counts only its own kind."""
    t = settled("n1:4", "a=2", "p1 a g2 @n1", "build a g2 np")
    assert t.rows() == ["p1 Running 2 n1", "build Running 2 n1"]


def test_a_department_caps_the_non_preemptible():
    t = settled("n1:8", "d1/=3 d1/a=2 d1/b=2", "a1 a g2 np @n1", "b1 b g2 np", "b2 b g1 np")
    assert t.rows() == ["a1 Running 2 n1", "b1 Pending 0", "b2 Running 1 n1"]


def test_limits_cap_everything():
    t = settled("n1:8", "a=2:max=3", "a1 a g2", "a2 a g2", "a3 a g1 np", "a4 a g1")
    assert t.rows() == ["a1 Running 2 n1", "a2 Pending 0", "a3 Running 1 n1", "a4 Pending 0"]


def test_limits_of_departments():
    t = settled("n1:8", "d1/=2:max=3 d1/a=2 d1/b=2", "a1 a g2", "b1 b g2", "b2 b g1")
    assert t.rows() == ["a1 Running 2 n1", "b1 Pending 0", "b2 Running 1 n1"]


def test_limits_on_cores_and_memory():
    t = settled("n1:4", "a=4:cpumax=4:rammax=8", "a1 a g1 c3", "a2 a g1 c2", "a3 a g1 r8", "a4 a g1 r1")
    assert t.rows() == ["a1 Running 1 n1", "a2 Pending 0", "a3 Running 1 n1", "a4 Pending 0"]


def test_core_quota_of_the_non_preemptible():
    t = settled("n1:4", "a=4:cpu=4", "a1 a g1 c3 np", "a2 a g1 c2 np", "a3 a g1 c2")
    assert t.rows() == ["a1 Running 1 n1", "a2 Pending 0", "a3 Running 1 n1"]


def test_limit_equal_to_quota_turns_over_quota_off():
    assert settled("n1:4", "a=2:max=2", *(f"a{i} a g1" for i in range(4))).split() == {"a": 2}


def test_unlimited_quota():
    t = settled("n1:4", "a=inf", *(f"a{i} a g1 np" for i in range(5)))
    assert t.split() == {"a": 4}


def test_a_derived_quota_is_what_the_others_leave():
    t = settled("n1:8", "default=? team-a=5", *(f"j{i} default g1 np" for i in range(5)))
    assert t.split() == {"default": 3, "team-a": 0}


def test_a_derived_quota_alone_is_everything():
    assert settled("n1:4", "default=?", *(f"j{i} default g1 np" for i in range(4))).split() == {"default": 4}


def test_a_derived_quota_is_never_below_what_is_non_preemptible():
    """The derived quota was 4; then another project was given all of it."""
    t = Ticker(world("n1:4", "default=? team-a=0", *(f"j{i} default g1 np" for i in range(4))))
    t.settle()
    t.quota("team-a=4")
    t.submit("a1 team-a g1")
    t.settle()
    assert t.split() == {"default": 4, "team-a": 0}
    t.finish("j0")
    t.settle()
    assert t.split() == {"default": 3, "team-a": 1}
    t.submit("j9 default g1 np")
    t.settle()
    assert t.split() == {"default": 3, "team-a": 1}


def test_a_lowered_quota_stops_nothing_that_is_non_preemptible():
    t = settled("n1:4", "a=4 b=0", *(f"j{i} a g1 np" for i in range(4)))
    t.quota("a=1")
    t.quota("b=3")
    t.submit("b1 b g1")
    t.settle()
    assert t.split() == {"a": 4, "b": 0} and not t.decisions(verb="evict")


def test_a_lowered_limit_stops_nothing_but_admits_nothing():
    t = settled("n1:4", "a=4", *(f"j{i} a g1" for i in range(3)))
    t.quota("a=1:max=1")
    t.submit("late a g1")
    t.settle()
    assert t.split() == {"a": 3}
    t.finish("j0")
    t.settle()
    assert t.split() == {"a": 2}


def test_no_quota_uses_idle_gpus_until_they_are_asked_for():
    t = settled("n1:2", "a=0 b=2", "a1 a g1", "a2 a g1")
    assert t.split() == {"a": 2, "b": 0}
    t.submit("b1 b g1", "b2 b g1")
    t.settle()
    assert t.split() == {"a": 0, "b": 2}


def test_no_quota_means_no_non_preemptible_work():
    assert settled("n1:2", "a=0", "a1 a g1 np").rows() == ["a1 Pending 0"]


def test_quotas_are_per_pool():
    """Full in one pool, it goes to the next."""
    t = settled("n1:2 n2:2:pool=fast", "a=1+fast=1", *(f"j{i} a g1 np" for i in range(3)), pools="fast")
    assert t.rows() == ["j0 Running 1 n1", "j1 Running 1 n2", "j2 Pending 0"]


def test_an_elastic_non_preemptible_job_grows_inside_quota():
    t = settled("n1:4", "a=2", "e a g1 elastic np")
    assert t.rows() == ["e Running 2 n1"]

"""The search budget of a cycle."""

from pliant.sched.preemption.attempt import Effort


def test_what_is_not_enough_for_the_whole_spends_nothing():
    effort = Effort(steps=0, refinements=5)
    assert effort.refine(2) and not effort.refine(4) and effort.refine(3)
    assert not effort.refine(1) and effort.refinements == 0


def test_steps_are_spent_to_the_last():
    effort = Effort(steps=3, refinements=0)
    assert effort.spend(2) and effort.spend(1) and not effort.spend(1)

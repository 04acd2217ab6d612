"""Finds the quotas of a pool or department that add up to more than it has."""

import pytest

from pliant.model.quantity import GPU
from pliant.sched.shares.promises import Promises
from tests.sched.worlds import world

CASES = [
    # projects and departments, nodes, {department or "": (promised, has)} of each that is overpromised
    ("a=2 b=2", 4, {}),
    ("a=2 b=2.5", 4, {"": (4500, 4000)}),
    ("a=2 b=2", 0, {"": (4000, 0)}),
    ("d/=4 d/a=2 d/b=2", 4, {}),
    ("d/=4 d/a=1", 3, {"": (4000, 3000)}),  # a department's quota counts, used or not
    ("d/=4 d/a=3 d/b=3", 8, {"d": (6000, 4000)}),
    ("d/=4 d/a=3 d/b=3 e/=5 e/c=1", 8, {"": (9000, 8000), "d": (6000, 4000)}),
]


@pytest.mark.parametrize(("queues", "machines", "found"), CASES)
def test_what_cannot_be_kept(queues, machines, found):
    made = world("n1:4", queues).world()
    names = {did: row.name for did, row in made.departments.items()}
    broken = Promises(made.departments, made.projects, "default").broken(machines * GPU)
    assert {names.get(it.department, ""): (it.promised, it.has) for it in broken} == found

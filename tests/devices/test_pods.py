"""The limits that pods sharing a GPU are told, and the meaning of their answers."""

from dataclasses import replace

import pytest

from pliant.devices.config import GpuConf, Grant, parse, render
from pliant.devices.pods import keeps_to, lends, pod_limits
from pliant.model.workload import AttemptId

GIB = 2**30
UUID = "GPU-00000000-0000-4000-8000-000000000001"
A, B = AttemptId("w-a", "worker-0", 1), AttemptId("w-b", "worker-0", 1)


def conf(attempt, request, most=0, limit=None, epoch=1):
    grant = Grant(UUID, (limit or request) * GIB, request * GIB, most=most * GIB)
    return GpuConf(str(attempt), "/run/pliant/ledger", (grant,), epoch)


def limits(*confs, usable=16):
    texts = {AttemptId.parse(each.workload): render(each) for each in confs}
    found = pod_limits(texts, UUID, usable * GIB)
    return {key: (parse(text).grants[0].limit // GIB, parse(text).epoch) for key, text in found.items()}


def test_what_nobody_asked_for_is_lent_to_those_that_may_have_more():
    assert limits(conf(A, 4, most=12)) == {A: (12, 2)}
    assert limits(conf(A, 4, most=16), conf(B, 4, most=16)) == {A: (8, 2), B: (8, 2)}
    assert limits(conf(A, 4), conf(B, 4)) == {}


def test_it_is_taken_back_for_who_comes():
    assert limits(conf(A, 4, most=12, limit=12, epoch=2), usable=8) == {A: (8, 3)}
    assert limits(conf(A, 4, most=12, limit=8, epoch=3), usable=8) == {}
    assert limits(conf(A, 4, most=12, limit=12, epoch=2), usable=-4) == {A: (4, 3)}


@pytest.mark.parametrize(
    ("said", "true"),
    [
        (conf(A, 4, most=12, limit=8, epoch=3), True),
        (conf(A, 4, most=12, limit=12, epoch=2), False),  # it has not read the new limit yet
        (conf(A, 4, most=12, limit=12, epoch=4), True),
    ],
)
def test_a_pod_keeps_to_a_limit_that_it_has_heard_of(said, true):
    wanted = render(conf(A, 4, most=12, limit=8, epoch=3))
    name = UUID.partition("-")[2]
    assert lends(wanted) and not lends(render(conf(A, 4)))
    assert keeps_to(wanted, render(said)) == true
    assert keeps_to(wanted, f"{render(said)}used {name} {8 * GIB}\n") == true
    assert not keeps_to(wanted, f"{render(said)}used {name} {8 * GIB + 1}\n")
    assert not keeps_to(wanted, "")
    for odd in ("used \n", f"used {name}\n", f"used {name} much\n", "used 1 2 3\n"):
        assert not keeps_to(wanted, render(said) + odd)
    assert not keeps_to(wanted, render(replace(said, grants=())).replace("end 0", ""))

"""Which failures every user is shown, and in which words."""

import time

import pytest
from httpx2 import ConnectError, Request, Response
from lightkube import ApiError
from lightkube.resources.core_v1 import Pod

from pliant.engines.kube.apiserver.cluster import AGAIN, Cluster
from pliant.engines.kube.apiserver.seen import seen
from pliant.engines.kube.apiserver.trouble import trouble_of

CURE = "it is tried again. See `kubectl get --raw /readyz?verbose`"


class Watch:
    def __init__(self, trouble="", lost=0.0):
        self.trouble, self.lost = trouble, lost


class Queue:
    def __init__(self, *errors):
        self.found = [*errors]

    def errors(self, seconds):
        return self.found


def answer(code, message):
    said = {"kind": "Status", "status": "Failure", "code": code, "message": message}
    request = Request("GET", "https://cluster")
    return ApiError(request=request, response=Response(code, json=said, request=request))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (answer(429, "too many requests"), "too many requests"),
        (
            answer(500, "etcdserver: mvcc: database space exceeded"),
            "etcdserver: mvcc: database space exceeded",
        ),
        (answer(500, 'failed calling webhook "theirs"'), 'failed calling webhook "theirs"'),
        (ConnectError("[Errno 111] Connection refused"), "[Errno 111] Connection refused"),
        (answer(429, "zu viele\nAnfragen \u2013 sp\u00e4ter."), "zu viele Anfragen ? sp?ter"),
        (answer(500, "no logs of pod secret-project/name"), ""),
        (answer(404, "pods secret-project/name not found"), ""),
        (ValueError("a fault of ours"), ""),
    ],
)
def test_what_is_no_matter_of_one_pod_is_told(error, said):
    other = answer(404, "not found")
    told = f"The cluster does not do what it is asked for ({said}): {CURE}" if said else ""
    assert trouble_of([Watch()], Queue(other, error)) == told


class Budget:
    """A client of a cluster in which a disruption budget forbids every eviction."""

    def create(self, eviction, name, namespace):
        causes = [{"reason": "DisruptionBudget", "message": "The disruption budget kept needs 1."}]
        said = {"kind": "Status", "code": 429, "details": {"causes": causes}}
        request = Request("POST", "https://cluster")
        raise ApiError(request=request, response=Response(429, json=said, request=request))


def a_pod(name):
    metadata = {"namespace": "runai-a", "name": name, "uid": f"uid-{name}"}
    return seen(Pod.from_dict({"metadata": metadata, "spec": {"containers": [{"name": "main"}]}}))


def test_a_refusal_by_a_budget_is_logged_again_later_and_forgotten_with_its_pod(monkeypatch, caplog):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    cluster = Cluster(Budget(), "c")
    for name in ("a", "a", "b"):
        assert not cluster.evict(a_pod(name), 0)
    assert [record.args[1] for record in caplog.records] == ["a", "b"]
    now[0] += AGAIN + 1
    assert not cluster.evict(a_pod("b"), 0)
    assert [record.args[1] for record in caplog.records] == ["a", "b", "b"]
    assert [*cluster._told] == ["uid-b"], "pod a is not asked to go any more: it is gone"


def test_a_watch_that_is_lost_comes_first():
    told = trouble_of([Watch(), Watch("the API server answers 503.")], Queue(answer(429, "busy")))
    assert told == f"Nothing is heard of the cluster (the API server answers 503): {CURE}"
    assert trouble_of([Watch("just now", float("inf"))], None) == ""

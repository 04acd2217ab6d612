"""The Kubernetes engine keeps the contract of engines, on a real API server."""

import pytest

from tests.engines.contract import A, EngineContract
from tests.kubernetes.kube_rig import KubeRig


@pytest.fixture
def rig(plane, tmp_path):
    rig = KubeRig(plane, tmp_path)
    rig.open()
    yield rig
    rig.clean()


class TestContract(EngineContract):
    pass


def test_a_command_that_reads_needs_kubectl(rig):
    rig.run(A, rig.forever())
    with pytest.raises(ValueError, match="kubectl exec -it --namespace runai-"):
        rig.engine.exec(A, ["cat"], tty=True, stdin=True, rows=24, columns=80)


def test_a_pod_that_has_ended_goes_when_kubectl_deletes_it(rig):
    """Its finalizer has kept it until its end was recorded; nothing else would take that away then."""
    rig.run(A, rig.exits(0))
    rig.finish(A)
    rig.until(lambda: rig.ends(A), "it has ended")
    rig.engine.recorded(A)
    name = rig.pod(A)["metadata"]["name"]
    rig.plane.kubectl("delete", "pod", "--namespace", f"runai-{rig.name}", name, "--wait=true")
    assert rig.pod(A) is None


def test_a_pod_that_has_ended_stays_until_that_is_recorded(rig):
    rig.run(A, rig.exits(0))
    rig.finish(A)
    rig.until(lambda: rig.ends(A), "it has ended")
    rig.plane.request("DELETE", f"{rig.pods}/{rig.pod(A)['metadata']['name']}")
    rig.until(lambda: "deletionTimestamp" in rig.pod(A)["metadata"], "it is deleted")
    rig.until(lambda: rig.engine._pod(A).deleting, "the engine has seen that")
    assert rig.pod(A) is not None
    rig.engine.recorded(A)
    rig.until(lambda: rig.pod(A) is None, "it goes")

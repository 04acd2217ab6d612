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

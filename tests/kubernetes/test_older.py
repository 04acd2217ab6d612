"""An API server of Kubernetes 1.33, three minor versions older: it drops the labels of a binding."""

import pytest

from tests.engines.contract import EngineContract
from tests.kubernetes.control_plane import shared
from tests.kubernetes.kube_rig import KubeRig
from tests.kubernetes.test_kube_cli import stage, test_two_projects_share_a_cluster  # noqa: F401


@pytest.fixture
def cluster(tmp_path):
    with shared(tmp_path / "cluster", "older") as plane:
        said = plane.request("GET", "/version")
        assert said.get("emulationMinor", said["minor"]) == "33"
        plane.add_node(
            "n1", gpus=2, labels={"nvidia.com/gpu.product": "NVIDIA-H100", "nvidia.com/gpu.memory": "81559"}
        )
        yield plane


class TestContract(EngineContract):
    @pytest.fixture
    def rig(self, older, tmp_path):
        rig = KubeRig(older, tmp_path)
        rig.open()
        yield rig
        rig.clean()

    @pytest.fixture(scope="class")
    def older(self, tmp_path_factory):
        with shared(tmp_path_factory.mktemp("older"), "older") as plane:
            yield plane

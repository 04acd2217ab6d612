"""The local engine keeps the contract with both supervisors."""

import pytest

from tests.engines.contract import EngineContract
from tests.engines.local_rig import LocalRig, supervisor


@pytest.fixture
def rig(request, tmp_path):
    rig = LocalRig(tmp_path, supervisor(request.cls.supervisor))
    rig.open()
    yield rig
    rig.clean()


class TestContract(EngineContract):
    supervisor = "native"


class TestContractWithoutCompiler(EngineContract):
    supervisor = "python"

"""Three engines, one contract: the same tests under the same names, none replaced or left out."""

import pytest

from tests.engines import test_local_contract, test_virtual
from tests.engines.contract import EngineContract
from tests.kubernetes import test_kube_contract

CONTRACT = {name: test for name, test in vars(EngineContract).items() if name.startswith("test_")}


@pytest.mark.parametrize("module", [test_local_contract, test_virtual, test_kube_contract])
def test_each_engine_runs_the_whole_contract_as_it_is_written(module):
    runs = {name: getattr(module.TestContract, name) for name in dir(module.TestContract) if "test_" in name}
    assert runs == CONTRACT
    marks = [getattr(it, "pytestmark", []) for it in (module, module.TestContract, *runs.values())]
    assert {mark.name for some in marks for mark in some} <= {"parametrize"}
    assert len(CONTRACT) > 20


@pytest.mark.parametrize("module", [test_local_contract, test_virtual, test_kube_contract])
def test_no_engine_multiplies_it(module):
    """A parametrized fixture would change the names of the tests."""
    assert module.rig._fixture_function_marker.params is None

"""The Kubernetes engine keeps the contract of engines, on a real API server."""

import pytest

from pliant.engines.kube.session import CANNOT_RUN
from tests.engines.contract import A, B, EngineContract
from tests.kubernetes.kube_rig import KubeRig

COMMAND = ["sh", "-c", "echo $PLIANT_ATTEMPT; exit 4"]


@pytest.fixture
def rig(plane, tmp_path):
    rig = KubeRig(plane, tmp_path)
    rig.open()
    yield rig
    rig.clean()


class TestContract(EngineContract):
    def test_exec(self, rig):
        """KWOK passes on what a command prints, but tells every exit code as an error of its own."""
        rig.commands = True
        rig.run(A, rig.forever())
        session = rig.engine.exec(A, COMMAND, tty=False, stdin=False, rows=0, columns=0)
        output = b""
        while (data := session.read(1.0)) != b"":
            output += data or b""
        first, _, rest = output.decode().partition("\n")
        assert first == str(A)
        assert "exit status 4" in rest
        assert session.exit_code() == CANNOT_RUN
        with pytest.raises(ValueError, match="not running"):
            rig.engine.exec(B, COMMAND, tty=False, stdin=False, rows=0, columns=0)
        with pytest.raises(ValueError, match="kubectl exec -it --namespace runai-"):
            rig.engine.exec(A, COMMAND, tty=True, stdin=True, rows=24, columns=80)

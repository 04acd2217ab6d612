"""The connection to an API server: several threads read at once."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pliant.engines.kube
from pliant.engines.kube.apiserver.connection import KINDS

TOGETHER = """
import sys, threading
from pathlib import Path
from lightkube.core.decoders import decode_object
from lightkube.resources.core_v1 import Pod, Secret
from pliant.engines.kube.apiserver.connection import Connection

connection = Connection(Path(sys.argv[1]))
sys.setswitchinterval(1e-6)
barrier = threading.Barrier(8)

def read():
    barrier.wait()
    for kind in (Secret, Pod):
        assert decode_object(b'{"metadata": {"name": "x"}}', kind).metadata.name == "x"

threads = [threading.Thread(target=read) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
connection.close()
"""


def test_several_threads_read_the_first_of_a_kind(tmp_path):
    """At the start of a gang all workers read its secret: msgspec then ended the server with SIGSEGV."""
    told = {"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}]}
    told |= {"current-context": "c"}
    told |= {"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}
    told |= {"users": [{"name": "u", "user": {"token": "t"}}], "apiVersion": "v1", "kind": "Config"}
    (tmp_path / "kubeconfig").write_text(json.dumps(told))
    words = [sys.executable, "-c", TOGETHER, str(tmp_path / "kubeconfig")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_kind_that_is_used_is_learnt():
    used = set()
    for path in Path(pliant.engines.kube.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lightkube.resources"):
                used |= {each.name for each in node.names}
    assert used <= {kind.__name__ for kind in KINDS}

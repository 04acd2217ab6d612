"""How many modules a command imports before it works."""

import json
import subprocess
import sys

from tests.cli.items import workload

LIST = "import sys; from pliant.cli.main import main; code = main(['list', '-A', '-o', 'name']); "
SAY = "import json; print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)"

NEVER = (
    "asyncio",
    "concurrent",
    "email.mime",
    "httpx",
    "logging",
    "multiprocessing",
    "numpy",
    "pathlib",
    "pydantic",
)
NEVER += ("rich", "sqlalchemy", "ssl", "subprocess", "tempfile", "urllib.request", "xml", "yaml")

OURS = {
    "pliant",
    "pliant.cli",
    "pliant.cli.output",
    "pliant.cli.output.plain",
    "pliant.cli.workloads",
    "pliant.cli.output.amounts",
    "pliant.cli.output.fit",
    "pliant.cli.commands",
    "pliant.cli.exits",
    "pliant.cli.lazy",
    "pliant.cli.workloads.listing",
    "pliant.cli.main",
    "pliant.cli.output.formats",
    "pliant.cli.session",
    "pliant.cli.output.tables",
    "pliant.cli.output.workload_tables",
    "pliant.client",
    "pliant.client.administration",
    "pliant.client.client",
    "pliant.client.config",
    "pliant.client.errors",
    "pliant.client.locate",
    "pliant.client.transport",
    "pliant.wire",
    "pliant.wire.proof",
}


def loaded(fake):
    fake.workloads = [workload(f"w{index}") for index in range(20)]
    done = subprocess.run([sys.executable, "-c", LIST + SAY], capture_output=True, text=True, check=True)
    code, modules = json.loads(done.stderr)
    assert code == 0
    assert len(done.stdout.split()) == 20
    return modules


def test_list_loads_nothing_it_does_not_need(fake):
    modules = loaded(fake)
    found = [name for name in modules if name.startswith(NEVER) and name.split(".")[0] in (*NEVER, "email")]
    assert found == []
    assert {name for name in modules if name.split(".")[0] == "pliant"} == OURS


def test_the_ssl_module_is_there_for_those_who_want_it_later(fake):
    code = LIST + "import ssl; assert ssl.SSLContext; import http.client"
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)

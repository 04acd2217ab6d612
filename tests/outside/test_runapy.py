"""Run:ai's own Python client: what works with a server of Pliant, and what does not."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from examples.walkthrough import Stage
from tests.house.environments import python_of

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs/reference/api.md"
NOT_HERE = {
    "TokensApi.app_token": "404",  # /v1/k8s: from before 2.0
    "ProjectsApi.get_projects_0": "404",
    "TokensApi.grant_token_v2": "400",  # the client itself sends neither the grant nor the secret
}
"""Calls that the page lists as not working -> the status that the client gets."""


@pytest.fixture
def stage(tmp_path: Path):
    stage = Stage(tmp_path / "stage")
    yield stage
    assert stage.close() == {}, "these processes outlived `pliant down`"


@pytest.mark.slow
def test_projects_workloads_and_tokens(stage: Stage) -> None:
    python = python_of(HERE, "no client of others", "run `tests/outside/setup` (1 minute)")
    up = stage.run("pliant up --tls --simulate 1x4")
    assert up.code == 0, up.said
    found = re.search(r"https://[\w.:\[\]-]+", up.out)
    assert found is not None, up.said
    told = {
        "url": found[0],
        "ca": str(stage.state / "tls" / "ca.pem"),
        "id": "root",
        "secret": (stage.state / "token").read_text().strip(),
        "image": "runai.jfrog.io/demo/quickstart",
    }
    words, sent = [python, HERE / "client.py"], json.dumps(told)
    done = subprocess.run(words, input=sent, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    problems = {line["called"]: line["problem"] for line in lines if line["problem"]}
    assert problems.keys() == NOT_HERE.keys(), problems
    for called, status in NOT_HERE.items():
        assert problems[called].startswith(f"{status} "), problems[called]
        assert f"`{called.partition('.')[2]}`" in PAGE.read_text("utf-8"), f"the page does not name {called}"
    assert len(lines) - len(problems) >= 50

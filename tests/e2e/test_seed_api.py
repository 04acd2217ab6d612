"""Types the API tabs of two documents that users know, with curl and in order.

The blocks are as printed there (Run:ai documentation: over quota, fairness and bin packing; quickstart of GPU
fractions). The test does what readers do by hand: it fills in the placeholders, and removes comments, blanks
after a backslash, and the stray quote and the backslashes inside the body of the second document. The server
speaks TLS, and curl trusts the authority that it has made.
"""

import json
import re
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from examples.walkthrough import Stage

SUBMIT = """curl --location 'https://<COMPANY-URL>/api/v1/workloads/trainings' \\
--header 'Content-Type: application/json' \\
--header 'Authorization: Bearer <TOKEN>' \\ #<TOKEN> is the API access token obtained in Step 1.
--data '{
  "name": "%s",
  "projectId": "<PROJECT-ID>", #The ID of the Project the workspace is running on.
  "clusterId": "<CLUSTER-UUID>",#<CLUSTER-UUID> is the unique identifier of the Cluster.
  "spec": {
    "image":"runai.jfrog.io/demo/quickstart",
    "compute": {
      "gpuDevicesRequest": %d
    }
  }
}'
"""
LIST = """curl --location 'https://<COMPANY-URL>/api/v1/workloads' \\
--header 'Content-Type: application/json' \\
--header 'Authorization: Bearer <TOKEN>' \\ #<TOKEN> is the API access token obtained in Step 1.
--data ''
"""
DELETE = """curl --location --request DELETE 'https://<COMPANY-URL>/api/v1/workloads/{}' \\
--header 'Authorization: Bearer <TOKEN>'
"""
FRACTION = """curl -L 'https://<COMPANY-URL>/api/v1/workloads/trainings' \\ # (1)
-H 'Content-Type: application/json' \\
-H 'Authorization: Bearer <TOKEN>' \\ # (2)
-d '{
    "name": "frac05",
    "projectId": "<PROJECT-ID>", '\\ # (3)
    "clusterId": "<CLUSTER-UUID>", \\ # (4)
    "spec": {
        "image": "runai.jfrog.io/demo/quickstart",
        "compute": {
        "gpuRequestType": "portion",
        "gpuPortionRequest" : 0.5
        }
    }
}'
"""


def cleaned(text: str) -> str:
    """The text without comments, which are neither shell nor JSON, and what they leave at a line's end."""
    lines = [re.sub(r"\s*#.*$", "", line) for line in text.splitlines()]
    inside, found = False, []
    for line in lines:
        if inside:
            line = re.sub(r",\s*'?\\\s*$", ",", line)
        inside |= bool(re.search(r"(--data|-d) '\{\s*$", line))
        found.append(line.rstrip())
    return "\n".join(found)


class Reader:
    """Fills in the documents' placeholders, and types."""

    def __init__(self, stage: Stage, folder: Path) -> None:
        self.stage = stage
        stage.env["no_proxy"] = "*"  # curl must reach this machine directly
        self.script = folder / "typed.sh"
        status = stage.run("pliant status").out
        found = re.search(r"https?://[\w.:\[\]-]+", status)
        assert found is not None, status
        self.url = found[0]
        assert self.url.startswith("https://"), status
        stage.env["CURL_CA_BUNDLE"] = str(Path(stage.env["PLIANT_STATE"], "tls", "ca.pem"))
        self.token = stage.run("pliant auth get-token").out.strip()

    def type(self, text: str, project: str = "") -> Any:
        said = cleaned(text).replace("https://<COMPANY-URL>", self.url).replace("<TOKEN>", self.token)
        if project:
            ids = {entry["name"]: entry["id"] for entry in self.get("/api/v1/org-unit/projects")["projects"]}
            cluster = self.get("/api/v1/clusters")[0]["uuid"]
            said = said.replace("<PROJECT-ID>", ids[project]).replace("<CLUSTER-UUID>", cluster)
        assert "<" not in said
        self.script.write_text(said)
        done = self.stage.run(f"bash {self.script}")
        assert done.code == 0, done.said
        return json.loads(done.out) if done.out else None

    def delete(self, *names: str) -> None:
        known = {item["name"]: item for item in self.type(LIST)["workloads"]}
        for name in names:
            kind = {"Training": "trainings", "Workspace": "workspaces"}[known[name]["type"]]
            self.type(DELETE.format(f"{kind}/{known[name]['id']}"))

    def nodes(self) -> list[list[str]]:
        """The names of the workloads on each node, the emptiest first."""
        told = [
            sorted({name for gpu in node["gpus"] for name in gpu["workloads"]})
            for node in self.get("/api/v1/nodes")["nodes"]
        ]
        return sorted(told, key=lambda names: (len(names), names))

    def get(self, path: str) -> Any:
        return self.type(f"curl -H 'Authorization: Bearer <TOKEN>' 'https://<COMPANY-URL>{path}'\n")

    def becomes(self, expected: dict[str, tuple[str, float]]) -> None:
        """Waits until the list has exactly these names -> (phase, GPUs)."""
        deadline = monotonic() + 240
        while True:
            items = self.type(LIST)["workloads"]
            seen = {item["name"]: (item["phase"], item["allocatedResources"]["gpu"]) for item in items}
            if seen == expected:
                return
            assert monotonic() < deadline, seen
            sleep(0.3)


@pytest.mark.slow
def test_over_quota_by_api(stage: Stage, tmp_path: Path) -> None:
    for command in (
        "pliant up --tls --simulate 2x2",
        "pliant project create team-a --quota 2",
        "pliant project create team-b --quota 2",
    ):
        assert stage.run(command).code == 0
    reader = Reader(stage, tmp_path)
    for name, gpus, project in (("a1", 1, "team-a"), ("a2", 2, "team-a"), ("b1", 1, "team-b")):
        assert reader.type(SUBMIT % (name, gpus), project)["name"] == name
    reader.becomes({"a1": ("Running", 1.0), "a2": ("Running", 2.0), "b1": ("Running", 1.0)})
    reader.type(SUBMIT % ("b2", 1), "team-b")
    reader.becomes(
        {"a1": ("Pending", 0.0), "a2": ("Running", 2.0), "b1": ("Running", 1.0), "b2": ("Running", 1.0)}
    )
    one = ("Running", 1.0)
    reader.delete("a2")
    reader.becomes({"a1": one, "b1": one, "b2": one})
    alone, pair = reader.nodes()
    assert (len(alone), len(pair)) == (1, 2)
    gone, left = pair
    reader.delete(gone)
    reader.becomes(dict.fromkeys((*alone, left), one))
    assert reader.nodes() == sorted([alone, [left]])
    reader.type(SUBMIT % ("a3", 2), "team-a")
    reader.becomes({"a3": ("Running", 2.0)} | dict.fromkeys((*alone, left), one))
    assert reader.nodes() == [["a3"], sorted([*alone, left])]


@pytest.mark.slow
def test_elasticity_by_api(stage: Stage, tmp_path: Path) -> None:
    """The documents on elasticity have only commands: their steps by calls like those of the others."""
    for command in ("pliant up --tls --simulate 1x2", "pliant project create team-a --quota 2"):
        assert stage.run(command).code == 0
    reader = Reader(stage, tmp_path)
    elastic = SUBMIT.replace('"spec": {', '"spec": {\n    "elastic": true,')
    filler = SUBMIT.replace("/trainings", "/workspaces").replace(
        '"spec": {', '"spec": {\n    "command": "sleep infinity",'
    )
    reader.type(elastic % ("elastic1", 1), "team-a")
    reader.becomes({"elastic1": ("Running", 2.0)})
    reader.type(filler % ("filler1", 1), "team-a")
    reader.becomes({"elastic1": ("Running", 1.0), "filler1": ("Running", 1.0)})
    reader.delete("elastic1", "filler1")
    reader.becomes({})
    reader.type(filler % ("filler2", 1), "team-a")
    reader.type(elastic % ("elastic2", 2), "team-a")
    reader.becomes({"filler2": ("Running", 1.0), "elastic2": ("Running", 1.0)})
    reader.delete("filler2")
    reader.becomes({"elastic2": ("Running", 2.0)})


@pytest.mark.slow
def test_fractions_by_api(stage: Stage, tmp_path: Path) -> None:
    for command in ("pliant up --tls --simulate 1x1", "pliant project create team-a --quota 1"):
        assert stage.run(command).code == 0
    reader = Reader(stage, tmp_path)
    reader.type(FRACTION, "team-a")
    reader.type(FRACTION.replace("frac05", "frac05-2"), "team-a")
    reader.becomes({"frac05": ("Running", 0.5), "frac05-2": ("Running", 0.5)})
    nodes = reader.get("/api/v1/nodes")["nodes"]
    (workloads,) = (gpu["workloads"] for node in nodes for gpu in node["gpus"])
    assert sorted(workloads) == ["frac05", "frac05-2"]

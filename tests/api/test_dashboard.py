"""The dashboard for Grafana asks for nothing that the server does not export."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.api.conftest import Api

BOARD = Path(__file__).parents[2] / "docs" / "guide" / "grafana.json"
WORD = re.compile(r"pliant_[a-z_]+")
SHAPES = ("pliant_gpu_share_used_bytes", "pliant_gpu_share_limit_bytes", "pliant_project_past_use_gpu_hours")
"""Metrics that a scrape names but gives no sample of if there are no GPU parts and no past use."""


def queries(board: Any) -> list[tuple[str, str]]:
    """(query, legend) of all panels and variables."""
    found = [(it["expr"], it["legendFormat"]) for panel in board["panels"] for it in panel["targets"]]
    return found + [(it["query"], "") for it in board["templating"]["list"] if it["type"] == "query"]


def exported(text: str) -> dict[str, set[str]]:
    """Metric name -> its labels."""
    found: dict[str, set[str]] = {line.split()[2]: set() for line in text.splitlines() if "# TYPE" in line}
    for line in text.splitlines():
        if not line.startswith("#"):
            name = re.split(r"[{ ]", line)[0]
            found.setdefault(name, set()).update(re.findall(r'[{,]([a-z]+)="', line))
    return found


def test_every_query_asks_for_what_is_exported(api: Api) -> None:
    api.running(api.submit("a")["workloadId"])
    known = exported(api.http.get("/metrics").text)
    asked = queries(json.loads(BOARD.read_text("utf-8")))
    for query, legend in asked:
        names = WORD.findall(query)
        assert names, query
        labels = {*re.findall(r"{{([a-z]+)}}", legend), *re.findall(r"[{(]([a-z]+)(?:=~|\))", query)}
        for name in names:
            assert name in known, f"{name} is not exported"
            if name not in SHAPES:
                assert labels - {"pliant_cycles_total"} <= known[name], (query, legend)
    shown = {name for query, _ in asked for name in WORD.findall(query)}
    hidden = {it for it in known if it.startswith("pliant_") and not it.endswith("_created")} - shown
    assert hidden == set(), "the dashboard shows all that there is"


def test_panels_do_not_lie_on_one_another() -> None:
    board = json.loads(BOARD.read_text("utf-8"))
    cells = [
        (x, y)
        for panel in board["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


@pytest.mark.parametrize("wrong", ["pliant_nothing", 'pliant_gpus{project="a"}'])
def test_a_wrong_query_would_be_found(quiet: Api, wrong: str) -> None:
    known = exported(quiet.http.get("/metrics").text)
    name = WORD.findall(wrong)[0]
    assert name not in known or "project" not in known[name]

"""A server accepts what the pages of docs/reference/scheduling print, page by page."""

import json
import re
import urllib.request
from pathlib import Path
from typing import Any

from examples.walkthrough import ROOT, Stage

FOLDER = ROOT / "docs" / "reference" / "scheduling"
FIRST = ("quota", "topology", "pools")
"""Pages that go first, as they make what others name."""
BLOCK = re.compile(r"^```(json)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MEANT = {"IMAGE": "ubuntu", "n1": "sim-0"}
"""Placeholders of the pages -> their values here."""


def pages() -> list[Path]:
    found = sorted(FOLDER.glob("*.md"))
    return [FOLDER / f"{name}.md" for name in FIRST] + [page for page in found if page.stem not in FIRST]


def printed(page: Path) -> tuple[list[str], list[Any]]:
    """(commands, request bodies) of a page."""
    blocks = BLOCK.findall(page.read_text("utf-8"))
    lines = [line for kind, text in blocks if not kind for line in text.splitlines()]
    commands = [line for line in lines if line.startswith(("pliant ", "runai "))]
    return commands, [json.loads(text) for kind, text in blocks if kind]


def meant(command: str) -> str:
    return re.sub(rf"\b({'|'.join(MEANT)})\b", lambda found: MEANT[found[0]], command)


def post(stage: Stage, body: Any) -> int:
    """Submits a workload of several tasks; returns the status."""
    done = stage.run("pliant auth get-token; pliant status")
    where = re.search(r"http://[\d.:]+", done.out)
    assert where is not None, done.said
    request = urllib.request.Request(
        f"{where[0]}/api/v1/workloads/distributed",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {done.out.split()[0]}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        status: int = answer.status
        return status


def test_every_command_is_taken(stage: Stage) -> None:
    done = stage.run("pliant up --simulate 2x8:80G")
    assert done.code == 0, done.said
    typed = 0
    for page in pages():
        commands, bodies = printed(page)
        for command in map(meant, commands):
            done = stage.run(command)
            assert done.code == 0, f"{page.name}: {command}\n{done.said}"
        for body in bodies:
            assert post(stage, body) == 202
        typed += len(commands) + len(bodies)
        if page.stem == FIRST[0]:
            stage.run("pliant config project team-a")
        if any("submit" in command for command in commands):
            assert stage.run("pliant delete -A -q").code == 0  # their names are free again
    assert typed > 40
    assert stage.run("pliant down --yes").code == 0
    assert stage.close() == {}

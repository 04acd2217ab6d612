"""Scenarios in which our verdict differs on purpose; `known.json` names the decision and our verdict.

By settings, `youngest` (the source's victims=youngest) and `defaults` (ours as they come), then by scenario:
the number of the page in docs/adr, and `ours`: how our outcome differs, word for word, from what the source
expects. It is asserted: an outcome that is neither theirs nor ours fails.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypedDict


class Known(TypedDict):
    adr: str
    ours: list[str]


_ALL: dict[str, dict[str, Known]] = json.loads((Path(__file__).parent / "known.json").read_text("utf-8"))


def known(defaults: bool) -> dict[str, Known]:
    """Scenario -> its entry in known.json."""
    return _ALL["defaults" if defaults else "youngest"]


def verdict(name: str, found: list[str], defaults: bool) -> str:
    """passed | ours (differs on purpose) | failed."""
    record = known(defaults).get(name)
    if record is None:
        return "failed" if found else "passed"
    return "ours" if found == record["ours"] else "failed"

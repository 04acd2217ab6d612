"""Scenarios of our own in the same schema: each tests one rule, or two that meet, and names them in `why`.

The expectations were derived from the rules by hand, before our core was run.
"""

from pathlib import Path

import pytest

from tests.conformance.__main__ import read
from tests.conformance.known import known, verdict
from tests.conformance.play import play
from tests.conformance.shuffle import shuffled

HAND = Path(__file__).parent / "hand"
AREAS = sorted(path.stem for path in HAND.glob("*.json"))


def cases(area):
    return list(read([HAND / f"{area}.json"]))


def test_each_has_a_name_and_says_why():
    found = [case for area in AREAS for case in cases(area)]
    assert len({case["id"] for case in found}) == len(found) >= 300
    assert all(case["why"] and case["id"].startswith(f"hand-{case['area']}-") for case in found)


@pytest.mark.parametrize("defaults", [False, True], ids=["youngest", "defaults"])
@pytest.mark.parametrize("area", AREAS)
def test_the_rules(area, defaults):
    differ = {
        case["id"]: (case["why"], found)
        for case in cases(area)
        if verdict(case["id"], found := play(case, defaults), defaults) == "failed"
    }
    assert not differ


@pytest.mark.parametrize("area", AREAS)
def test_the_rules_under_other_names(area):
    ours = known(False)
    differ = [case["id"] for case in cases(area) if bool(play(shuffled(case, 3))) != (case["id"] in ours)]
    assert not differ

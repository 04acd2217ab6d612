"""Runs a scenario from its beginning to its verdict: an empty list of differences is a pass."""

from __future__ import annotations

from collections.abc import Iterator

from tests.conformance.build import build
from tests.conformance.compare import differences
from tests.conformance.session import Outcome, carry, session
from tests.conformance.state import ContradictionError, Json, State, UnsupportedError, begin

EPOCH = 1_000_000_000
"""The time at which scenarios begin, in ms: far enough from 0 for jobs to be hours old."""


def play(case: Json, defaults: bool = False) -> list[str]:
    """The differences, in the order in which they were seen; never raises.

    `defaults`: with our default settings, otherwise with victims=youngest, as the source decides.
    """
    try:
        if case["mode"] == "single_session":
            return list(_single(case, defaults))
        if case["mode"] == "rounds":
            return list(_rounds(case, defaults))
        return [f"unknown mode {case['mode']!r}"]
    except UnsupportedError as error:
        return [f"not supported: {error}"]
    except ContradictionError as error:
        return [f"contradicts itself: {error}"]
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]


def _single(case: Json, defaults: bool) -> Iterator[str]:
    outcome = session(begin(case, EPOCH), EPOCH, EPOCH, defaults)
    yield from differences(case, outcome.state, outcome.world, outcome.unplaced, EPOCH)
    yield from _calls(case, outcome, "")


def _rounds(case: Json, defaults: bool) -> Iterator[str]:
    rounds = case.get("rounds", {})
    delay = max(1, round(float(rounds.get("delay_s", 0)) * 1000))
    jobs = {job["name"]: job for job in case["jobs"]}
    state, now = begin(case, EPOCH), EPOCH
    unplaced: set[str] = set()
    for number in range(1, int(rounds.get("until_match", 2)) + 1):
        outcome = session(state, now, EPOCH, defaults)
        yield from _calls(case, outcome, f"cycle {number}: ")
        state, unplaced, now = carry(outcome, jobs), outcome.unplaced, now + delay
    found = list(_at_rest(case, state, unplaced, now))
    yield from found
    for number in range(1, int(rounds.get("after_match", 5)) + 1):
        outcome = session(state, now, EPOCH, defaults)
        where = f"{number} cycles later: "
        for text in differences(case, outcome.state, outcome.world, outcome.unplaced, now):
            if text not in found:
                found.append(text)
                yield where + text
        yield from _calls(case, outcome, where)
        state, now = carry(outcome, jobs), now + delay


def _at_rest(case: Json, state: State, unplaced: set[str], now: int) -> Iterator[str]:
    yield from differences(case, state, build(state, now, EPOCH).world, unplaced, now)


def _calls(case: Json, outcome: Outcome, where: str) -> Iterator[str]:
    most = case.get("expected", {}).get("max_calls", {})
    for name in ("bind", "evict", "pipeline"):
        count = getattr(outcome, name)
        if most.get(name) is not None and count > most[name]:
            yield f"{where}{count} calls to {name}, expected at most {most[name]}"

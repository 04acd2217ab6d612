"""Every sentence about a decision, in one file to read through: sentences.txt.

Other tests compare codes and numbers. After a change of wording, `python -m tests.wording.test_wording`
writes the file again; read the difference.
"""

from pathlib import Path

import pytest

from pliant.model.reason import MayRead, Reason, sentence
from pliant.model.reason.told import KINDS, again
from tests.wording.examples import CURES, ESTIMATES, NOW, REASONS, TOGETHER

GOLDEN = Path(__file__).with_name("sentences.txt")
ONLY_A: MayRead = lambda project: project == "1"  # noqa: E731
ALL: MayRead = lambda project: True  # noqa: E731


def said() -> str:
    lines = ["# reasons"]
    lines += [f"{reason.code}: {reason.text(NOW)}" for reason in REASONS]
    lines += ["", "# reasons, to a reader who may read names of project a alone"]
    lines += [
        f"{reason.code}: {seen.text(NOW)}" for reason in REASONS if (seen := reason.seen_by(ONLY_A)) != reason
    ]
    lines += ["", "# what would let it start"]
    lines += [f"{cure.kind}: {cure.text}" for cure in CURES]
    lines += [f"{cure.kind}: {seen.text}" for cure in CURES if (seen := cure.seen_by(ONLY_A)) != cure]
    lines += [f"together: {sentence(TOGETHER)}"]
    lines += ["", "# when it will start"]
    lines += [f"{it.unknown}: unknown; {it.unknown_text}" for it in ESTIMATES]
    return "\n".join(lines) + "\n"


def test_all_sentences() -> None:
    assert said() == GOLDEN.read_text("utf-8")


def test_every_reason_has_an_example() -> None:
    assert {type(reason) for reason in REASONS} == set(KINDS.values())


def test_every_cure_that_is_looked_for_has_an_example() -> None:
    from pliant.sched.explain.remedies import ANYWAY, BOUNDS

    assert {cure.kind for cure in CURES} == {*ANYWAY, *(kind for kinds in BOUNDS.values() for kind in kinds)}


@pytest.mark.parametrize("reason", REASONS, ids=lambda reason: reason.code)
def test_a_reason_comes_back_from_history(reason: Reason) -> None:
    assert again(reason.code, reason.numbers, reason.names) == reason


@pytest.mark.parametrize("reason", REASONS, ids=lambda reason: reason.code)
def test_what_a_reader_may_not_know_is_in_no_field(reason: Reason) -> None:
    seen = reason.seen_by(lambda project: False)
    hidden = {named for _, named in reason.names if named.project}
    assert not {it.id for _, it in seen.names} & {it.id for it in hidden}
    assert not set(dict(seen.numbers).values()) & {it.name for it in hidden}
    for it in hidden:
        assert it.name not in seen.text(NOW).replace(".", " ").replace(",", " ").split()
    kept = {name: value for name, value in reason.numbers if isinstance(value, int)}
    assert kept.items() <= dict(seen.numbers).items(), "numbers stay"


def test_an_event_without_keys_is_read_and_names_nobody_to_others() -> None:
    old = (("gpus", 2000), ("beneficiary", "b1"), ("priority", 80), ("own_priority", 50))
    reason = again("preempted", old)
    assert reason is not None and "b1" in reason.seen_by(ALL).text(NOW)
    assert "b1" not in reason.seen_by(lambda project: project in ("1", "2")).text(NOW)
    assert again("a code of tomorrow", old) is None
    assert again("preempted", old[:1]) is None


if __name__ == "__main__":
    GOLDEN.write_text(said(), "utf-8")

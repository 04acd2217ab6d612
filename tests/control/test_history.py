"""Every event can be recorded: one that cannot would fail the whole cycle."""

import typing
from collections.abc import Iterator

import pytest

import pliant.model.reason as reasons
from pliant.control.state.draft import Draft
from pliant.model.event import EventKind
from pliant.model.fact import AttemptEnded
from pliant.model.reason import Named, Reason
from pliant.model.reason.told import again
from pliant.model.workload import Exit
from tests.control.stage import Stage

NAMED = Named("workload", "w-1", "w", "p-1", "p")
VALUES = {
    str: ["a"],
    int: [3],
    bool: [True, False],
    int | None: [5, None],
    Named: [NAMED],
    Named | None: [NAMED, None],
    tuple[Named, ...]: [(NAMED, NAMED), ()],
    tuple[str, ...]: [("a", "b"), ()],
}


def kinds(of: type[Reason] = Reason) -> Iterator[type[Reason]]:
    for kind in of.__subclasses__():
        yield kind
        yield from kinds(kind)


ALL = sorted({kind.__qualname__: kind for kind in kinds()}.items())


@pytest.mark.parametrize("kind", [kind for _, kind in ALL], ids=[name for name, _ in ALL])
def test_every_reason_can_be_recorded(kind: type[Reason], stage: Stage) -> None:
    assert kind.__module__.startswith(reasons.__name__)
    hints = {name: hint for name, hint in typing.get_type_hints(kind).items() if "ClassVar" not in str(hint)}
    for at in range(2):
        values = {name: VALUES[hint][min(at, len(VALUES[hint]) - 1)] for name, hint in hints.items()}
        reason = kind(**values)

        def run(draft: Draft) -> None:
            draft.event("cluster", EventKind.PENDING, "x", reason=reason)  # noqa: B023 - runs at once

        stage.loop.call(run)
    first, second = stage.service.history("cluster")
    assert {name for name, _ in first[1].numbers} == set(hints)
    assert {name for name, _ in second[1].numbers} <= set(hints)
    assert again(kind.code, second[1].numbers, second[1].names) == reason


def test_an_end_before_the_start_is_the_start(stage: Stage) -> None:
    """A supervisor stamps the end and the server the start when it learns of it, which may be later."""
    job = stage.submit("job")
    stage.run()
    [row] = stage.service.attempts(job)
    assert row.started is not None
    stage.loop.post(AttemptEnded(row.id, Exit(row.started - 5, code=3)))
    stage.run()
    [row] = stage.service.attempts(job)
    assert row.exit is not None and row.exit.at == row.started

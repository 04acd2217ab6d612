"""Records the answer to a request with an Idempotency-Key in the same transaction as its change."""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from pliant.control.ports import Remembered
from pliant.control.state.draft import Draft

T = TypeVar("T")


@dataclass(slots=True)
class Keeping:
    """A request with an Idempotency-Key, while it is carried out."""

    key: str
    fingerprint: str
    answer: Callable[[Any], tuple[int, str]] | None = None
    """(status, body to keep) from the result of the change; None: its handler has not set it."""
    kept: bool = False


KEEPING: ContextVar[Keeping | None] = ContextVar("keeping", default=None)


def keeping(run: Callable[[Draft], T]) -> Callable[[Draft], T]:
    """`run`, with the answer in the same transaction if the request of this thread keeps one."""
    kept = KEEPING.get()
    if kept is None or kept.answer is None:
        return run
    tell = kept.answer

    def both(draft: Draft) -> T:
        result = run(draft)
        draft.put(Remembered(kept.key, kept.fingerprint, *tell(result), draft.now))
        kept.kept = True
        return result

    return both

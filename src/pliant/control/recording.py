"""What is recorded of each cycle so that it can be replayed: a whole world now and then, rows in between."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pliant.control.decider.port import News
from pliant.control.errors import NotFound
from pliant.sched.plan import Plan
from pliant.sched.settings import Settings
from pliant.sched.world.rows import Row


@dataclass(frozen=True, slots=True)
class Cycled:
    """One cycle: its changes and its plan."""

    epoch: int  # of the leadership
    cycle: int  # number, which rises within the epoch
    now: int  # ms since the epoch, as the core was told
    settings: Settings
    news: Sequence[News]
    plan: Plan
    base: Sequence[Row] | None = None  # the whole world with `news`; None: the previous one plus `news`
    took: int = 0  # microseconds of deciding


@dataclass(frozen=True, slots=True)
class Extent:
    """What a recorder holds: first and last cycle as (epoch, number), and `size` of at most `most` bytes.

    `missed`: cycles after the first one that could not be written; they are in no answer of the recorder.
    """

    first: tuple[int, int] | None
    last: tuple[int, int] | None
    began: int  # ms; the first one's time
    ended: int
    size: int
    most: int
    missed: int = 0


class Recorder(Protocol):
    """Called on the loop's thread; must return at once, and must not raise if recording fails."""

    @property
    def due(self) -> bool:
        """True if the next cycle should bring the whole world."""

    def take(self, cycled: Cycled) -> None: ...

    def held(self) -> Extent:
        """For any thread."""

    def record(self, *, cycle: int | None = None, at: int | None = None) -> bytes:
        """The lines from the last whole world before a cycle (or a time in ms) onward.

        Raises NotFound, also for a time at which cycles could not be written, and Unavailable.
        """

    def newest(self) -> bytes:
        """The lines since the last whole world; nothing if there are none."""

    def close(self) -> None: ...


class Nothing:
    """Records nothing."""

    due = False

    def take(self, cycled: Cycled) -> None:
        """Does nothing."""

    def held(self) -> Extent:
        return Extent(None, None, 0, 0, 0, 0)

    def record(self, *, cycle: int | None = None, at: int | None = None) -> bytes:
        raise NotFound("This server records no cycles.")

    def newest(self) -> bytes:
        return b""

    def close(self) -> None:
        """Does nothing."""

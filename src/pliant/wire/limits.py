"""Bounds of what may be sent, beside the types that they bound. `pliant.api.schemas.models` checks them."""

from dataclasses import dataclass
from typing import Annotated, Any


@dataclass(frozen=True, slots=True)
class Range:
    """A number within these, both included."""

    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Length:
    """So many characters, entries or keys. Text has no NUL; `plain` text no control character at all, and
    neither it nor a `word` has one that turns the direction of writing: such a name looks like another."""

    most: int
    least: int = 0
    plain: bool = False
    word: bool = False


@dataclass(frozen=True, slots=True)
class Looks:
    """What a value looks like, for the description: who refuses another one says what is wrong with it.

    `pattern` is a regular expression of JSON Schema, `keys` one of an object's keys; there are no other
    values than `words`; a number is between `least` and `most`, and a multiple of `step`; a list has
    `entries` at least and, if `once`, none twice. Or it looks like `other`.
    """

    pattern: str = ""
    format: str = ""
    words: tuple[Any, ...] = ()
    least: float | None = None
    most: float | None = None
    step: float | None = None
    keys: str = ""
    entries: int | None = None
    once: bool = False
    other: "Looks | None" = None


Count = Annotated[int, Range(0, 2**31)]
Size = Annotated[int, Range(0, 2**62)]
Seconds = Annotated[int, Range(0, 10**10)]
Amount = Annotated[float, Range(0, 10**9)]
Bound = Annotated[float, Range(-1, 10**12)]  # -1: unlimited
PortNumber = Annotated[int, Range(1, 65_535)]
Text = Annotated[str, Length(2**20)]
Word = Annotated[str, Length(1000, word=True)]
Name = Annotated[str, Length(1000, least=1, word=True)]


@dataclass(frozen=True, slots=True)
class NoEffect:
    """A field of Run:ai that is taken and does nothing here; the answer says so."""


Unused = Annotated[Any, NoEffect()]


@dataclass(frozen=True, slots=True)
class RulesOf:
    """A tree with the fields of a type, with a rule of a policy where a value would stand."""

    kind: type

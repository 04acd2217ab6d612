"""Bounds of what may be sent, next to the types that they bound. `pliant.api.schemas.models` checks them."""

from dataclasses import dataclass
from typing import Annotated, Any


@dataclass(frozen=True, slots=True)
class Range:
    """A number from `least` to `most`, both included."""

    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Length:
    """From `least` to `most` characters, entries or keys. Text has no NUL.

    `plain` text has no control character. Neither `plain` text nor a `word` has a character that changes the
    direction of writing: with it, one name looks like another.
    """

    most: int
    least: int = 0
    plain: bool = False
    word: bool = False


@dataclass(frozen=True, slots=True)
class Looks:
    """The form of a value, for the description only: the code that refuses other values says what is wrong.

    `pattern` is a regular expression of JSON Schema, `keys` one for an object's keys. `words` are the only
    values. A number is between `least` and `most`, and a multiple of `step`. A list has at least `entries`
    entries and, if `once`, no entry twice. Or the value has the form `other`.
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
    """A field of Run:ai that is accepted and has no effect here; the answer says so."""


Unused = Annotated[Any, NoEffect()]


@dataclass(frozen=True, slots=True)
class RulesOf:
    """A tree with the fields of a type, which has rules of a policy in the place of values."""

    kind: type

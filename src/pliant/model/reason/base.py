"""What all reasons have in common: a code, numbers, keys of what they name, and a sentence."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple, Self

from pliant.model.quantity import counted, format_bytes, listed, plain, spell_gpus

MayRead = Callable[[str], bool]
"""True for the id of a project whose names a reader may be told."""


class Named(NamedTuple):
    """A workload, project or department: its key, and its names for readers who may know them."""

    kind: str  # workload | project | department
    id: str  # empty once it was left out for a reader
    name: str = ""  # likewise
    project: str = ""  # id of the project to which the name belongs; empty: all may read it
    project_name: str = ""  # of a workload

    def seen_by(self, may_read: MayRead) -> "Named":
        """Itself for a reader who may know it, else its kind alone."""
        return self if not self.project or may_read(self.project) else Named(self.kind, "")

    def __str__(self) -> str:
        """'b1', 'project team-b', 'department research'; 'another workload' where the name was left out."""
        if not self.name:
            return f"another {self.kind}"
        return self.name if self.kind == "workload" else f"{self.kind} {self.name}"

    @property
    def full(self) -> str:
        """A workload with its project: 'b1 (project team-b)'."""
        if self.kind != "workload":
            return str(self)
        return f"{self.name} (project {self.project_name})" if self.name else "a workload of another project"


@dataclass(frozen=True, slots=True)
class Reason:
    """Base of all reasons. `code` is stable and machine-readable; so are the names of the fields."""

    code: ClassVar[str] = ""
    api_code: ClassVar[str] = ""  # the API's phaseReason, where it has one

    def text(self, now: int) -> str:
        """A sentence for people, as of `now` (ms): the only place where a reason is put into words."""
        raise NotImplementedError(type(self).__name__)

    @property
    def numbers(self) -> tuple[tuple[str, int | str], ...]:
        """Field names and values, for JSON and history: true as 1, false as 0, a Named as its name."""
        pairs = ((field.name, _flat(getattr(self, field.name))) for field in fields(self))
        return tuple((name, value) for name, value in pairs if value is not None)

    @property
    def names(self) -> tuple[tuple[str, Named], ...]:
        """(field, Named) of everything that it names."""
        return tuple(
            (field.name, named) for field in fields(self) for named in _whom(getattr(self, field.name))
        )

    def seen_by(self, may_read: MayRead) -> Self:
        """The same without the names and keys that a reader may not know; numbers stay."""
        hidden: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if _whom(value):
                one = isinstance(value, Named)
                hidden[field.name] = (
                    value.seen_by(may_read) if one else tuple(it.seen_by(may_read) for it in value)
                )
        return replace(self, **hidden) if hidden else self


def _whom(value: Any) -> tuple[Named, ...]:
    if isinstance(value, Named):
        return (value,)
    return value if isinstance(value, tuple) and value and isinstance(value[0], Named) else ()


def _flat(value: Any) -> int | str | None:
    """A field as JSON and history have it; None: it is left out."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, Named):
        return value.name or None
    if isinstance(value, tuple):
        return ", ".join(name for it in value if (name := it.name if isinstance(it, Named) else it))
    return value  # type: ignore[no-any-return]


def amount(resource: str, value: int) -> str:
    """An amount of gpu (thousandths), cpu (millicores), memory or gpu memory (bytes), for people."""
    if resource == "gpu":
        return spell_gpus(value)
    if resource == "cpu":
        return f"{plain(value)} core{'' if 0 < value <= 1000 else 's'}"
    return f"{format_bytes(value)} of {resource}"


def bare(resource: str, value: int) -> str:
    """amount() without the resource, for a sentence that names it already."""
    return plain(value) if resource in ("gpu", "cpu") else format_bytes(value)


def are(resource: str, value: int, word: str) -> str:
    """'1 GPU is free', '2 GPUs are free', '16G of memory is free'."""
    many = resource in ("gpu", "cpu") and not 0 < value <= 1000
    return f"{amount(resource, value)} {'are' if many else 'is'} {word}"


def victim(named: Named) -> str:
    """'victim a1', 'another workload'."""
    return f"victim {named.name}" if named.name else str(named)


def together(whom: Iterable[Named]) -> str:
    """'a1', 'a1 and b1', 'a1 and 2 other workloads': those whose names were left out are counted."""
    whom = tuple(whom)
    kind = whom[0].kind if whom else "workload"
    known = [str(it) for it in whom if it.name]
    hidden = len(whom) - len(known)
    if not known:
        return f"another {kind}" if hidden == 1 else f"{hidden} other {kind}s"
    return listed([*known, counted(hidden, f"other {kind}")] if hidden else known)

"""Options that each set one field of a submission: how they are typed and what is sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import click

from pliant.cli.output.amounts import duration, memory, pair, whole

if TYPE_CHECKING:
    from pliant.wire.submission import Pair, Spec

_Function = TypeVar("_Function", bound=Callable[..., Any])


def pairs(entries: Sequence[str], flag: str) -> list[Pair]:
    """['K=V', ...] in the API's form of variables, labels and annotations. Raises UsageError."""
    return [{"name": name, "value": value} for name, value in (pair(entry, flag) for entry in entries)]


def seconds(text: str, flag: str) -> float | int:
    return whole(duration(text, flag))


def whole_seconds(text: str, flag: str) -> int:
    return round(duration(text, flag))


def seconds_or_never(text: str, flag: str) -> float | int:
    return -1 if text in ("never", "-1") else seconds(text, flag)


def amount(text: str, flag: str) -> str:
    """The amount of memory as it was typed. Raises UsageError if it is not one."""
    memory(text, flag)
    return text.strip()


def words(entries: Sequence[str], flag: str) -> list[str]:
    """The names of a repeatable option, also separated by commas or spaces, in their order."""
    return [name for entry in entries for name in entry.replace(",", " ").split()]


class Option(NamedTuple):
    """An option and the field of wire.submission.Spec that it sets."""

    field: str
    flags: tuple[str, ...]
    metavar: str | None
    help: str
    read: Callable[[Any, str], Any] = lambda given, flag: given  # converts to what is sent; UsageError
    multiple: bool = False
    type: Any = None
    cls: type[click.Option] = click.Option
    flag: bool = False  # it takes no value and is sent as true

    def decorate(self, function: _Function) -> _Function:
        said: dict[str, Any] = {
            "metavar": self.metavar,
            "help": self.help,
            "type": self.type,
            "cls": self.cls,
            **({"is_flag": True, "default": None} if self.flag else {}),
        }
        return click.option(*self.flags, self.field, multiple=self.multiple, **said)(function)


COMMON = (
    Option("nodeType", ("--node-type",), "TYPE", "Only nodes with the label run.ai/type=TYPE."),
    Option("nodePools", ("--node-pools",), "POOLS", "Node pools, in the order to try.", words, multiple=True),
    Option(
        "backoffLimit",
        ("--backoff-limit", "--backoffLimit"),
        "N",
        "Maximum number of retries after a failure.",
        type=click.IntRange(0),
    ),
    Option("labels", ("--label", "-l"), "K=V", "Label (repeatable).", pairs, multiple=True),
    Option("annotations", ("--annotation", "-a"), "K=V", "Annotation (repeatable).", pairs, multiple=True),
    Option(
        "preemptionDelaySeconds",
        ("--preemption-delay",),
        "TIME",
        "Preemption delay: time pending before it may preempt or reclaim.",
        seconds,
    ),
    Option(
        "maxRuntimeSeconds",
        ("--max-runtime",),
        "TIME",
        "Maximum runtime; makes the job eligible for backfill (a longer run is not stopped).",
        seconds,
    ),
    Option(
        "background",
        ("--background",),
        None,
        "Run on idle GPUs only, outside of quotas; first to be evicted.",
        flag=True,
    ),
    Option(
        "staleGraceSeconds",
        ("--stale-grace",),
        "TIME",
        "Time to keep the remaining tasks after a required task is lost; never: no limit.",
        seconds_or_never,
    ),
)
"""Options of both editions."""


RUNS = (
    Option(
        "completions",
        ("--completions", "--runs"),
        "N",
        "Number of runs that must succeed.",
        type=click.IntRange(1),
    ),
    Option(
        "parallelism",
        ("--parallelism",),
        "M",
        "Maximum number of runs at the same time.",
        type=click.IntRange(1),
    ),
)
"""Options of a training or workspace."""


def decorated(function: _Function, decorators: Sequence[Option | Callable[[Any], Any]]) -> _Function:
    """Adds these options to the command; its help lists them in this order."""
    for one in reversed(decorators):
        function = one.decorate(function) if isinstance(one, Option) else one(function)
    return function


def runs(function: _Function) -> _Function:
    return decorated(function, RUNS)


def read(options: Sequence[Option | Callable[[Any], Any]], given: Mapping[str, Any]) -> Spec:
    """The fields that the given options set."""
    sent = {
        option.field: option.read(value, option.flags[0])
        for option in options
        if isinstance(option, Option) and (value := given.get(option.field)) not in (None, ())
    }
    return cast("Spec", sent)

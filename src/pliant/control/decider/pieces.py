"""Sends asks and plans over the pipe between a server and its decider, pickled in small pieces.

Only a process and its own child use this, over a private pipe. A piece is small because Python runs no
other thread while it unpickles one, and the server has to answer requests meanwhile.
"""

import io
import pickle
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache
from itertools import chain, islice
from multiprocessing.connection import Connection
from operator import attrgetter
from typing import Any, TypeVar, cast

from pliant.control.decider.port import Ask, Decided
from pliant.model.workload import Launch, Workload
from pliant.sched.plan import Plan
from pliant.sched.verdicts import Verdicts, between, shared
from pliant.sched.world.rows import Row

R = TypeVar("R", bound=Row)

PIECE = 250
"""Rows, or entries of a plan, in one piece."""

OUT_OF_MEMORY = 3
"""Exit code of a decider that ran out of memory."""

LEFT_OUT: Mapping[str, Any] = {"launch": Launch(""), "annotations": ()}
"""Fields of a workload that the core never reads, and the values sent instead."""

_WORKLOADS, _REASONS, _WHICH, _ENDS = "workloads", "reasons", "which", "ends"
"""Columns of verdicts. Only those ids are sent that the last verdicts lack or have in another order."""

PARTS = tuple(it.name for it in fields(Plan) if it.name not in ("wake", "verdicts"))
"""Fields of a plan that are sequences of rows."""

COLUMN = 5_000
"""Entries of such a column in one piece; for reasons it is PIECE."""


class _Pickler(pickle.Pickler):
    """Writes a dataclass as a call with its fields: faster, and the same whether it is compiled or not."""

    def reducer_override(self, value: object) -> Any:
        parts = _parts(cast(Hashable, type(value)))
        return NotImplemented if parts is None else (type(value), parts(value))


class _LeanPickler(_Pickler):
    """Leaves out the fields of workloads that the core never reads."""

    def reducer_override(self, value: object) -> Any:
        if type(value) is not Workload:
            return super().reducer_override(value)
        parts = list(_GET_WORKLOAD(value))
        for at, bare in _BARE:
            parts[at] = bare
        return Workload, tuple(parts)


@cache
def _parts(kind: Any) -> Callable[[Any], tuple[Any, ...]] | None:
    """A getter of the arguments that rebuild a dataclass of this kind; None for another class."""
    if not is_dataclass(kind):
        return None
    names = _names(kind)
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple([getattr(value, name) for name in names])


def _names(kind: Any) -> list[str]:
    return [it.name for it in fields(kind) if it.init]


_GET_WORKLOAD = attrgetter(*_names(Workload))
_BARE = [(_names(Workload).index(name), bare) for name, bare in LEFT_OUT.items()]


def packed(value: object) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(value)
    return buffer.getvalue()


class Sender:
    """Writes messages. An object that occurs twice in one message arrives as one object."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._told = Verdicts()  # the last ones

    def ask(self, ask: Ask) -> None:
        parts = _pieces(ask.base if ask.base is not None else ask.news)
        self._send(_LeanPickler, (ask.number, ask.now, ask.settings, ask.base is not None), parts)

    def decided(self, decided: Decided) -> None:
        plan = decided.plan or Plan()
        rows = ((name, piece) for name in PARTS for piece in _pieces(getattr(plan, name)))
        before, told = self._told.workloads, plan.verdicts
        kept = shared(before, told.workloads)
        _, new = between(kept, before, told.workloads)
        ids = ((_WORKLOADS, piece) for piece in _pieces([*chain.from_iterable(new)], COLUMN))
        reasons = ((_REASONS, piece) for piece in _pieces(told.reasons))
        which = ((_WHICH, piece) for piece in _pieces(told.which, COLUMN))
        ends = ((_ENDS, piece) for piece in _pieces(told.ends, COLUMN))
        head = decided.number, plan.wake, decided.took, (*kept, (0, len(told.workloads), 0))
        self._send(_Pickler, head, chain(rows, ids, reasons, which, ends))
        self._told = told

    def _send(self, kind: type[_Pickler], head: object, parts: Iterable[object]) -> None:
        buffer = io.BytesIO()
        pickler = kind(buffer, pickle.HIGHEST_PROTOCOL)
        for part in chain((head,), parts, (None,)):
            pickler.dump(part)
            self._pipe.send_bytes(buffer.getvalue())
            buffer.seek(0)
            buffer.truncate()


class Receiver:
    """Reads messages. Raises EOFError if the other side has ended, TimeoutError if no piece comes in time."""

    def __init__(self, pipe: Connection, patience: float | None = None) -> None:
        self._pipe = pipe
        self._told = Verdicts()  # the last ones
        self._patience = patience  # seconds to wait for each piece; None: for ever
        self._piece = io.BytesIO()

    def ask(self) -> Ask:
        parts = self._parts()
        number, now, settings, whole = next(parts)
        rows = [row for part in parts for row in part]
        return Ask(number, now, settings, () if whole else rows, rows if whole else None)

    def decided(self) -> Decided:
        parts = self._parts()
        number, wake, took, kept = next(parts)
        found: dict[str, Any] = {name: [] for name in (*PARTS, _WORKLOADS, _REASONS)}
        found |= {_WHICH: array("q"), _ENDS: array("q")}
        for name, piece in parts:
            found[name] += piece
        before, new = self._told, iter(found.pop(_WORKLOADS))
        workloads: list[str] = []
        for since, place, length in kept:
            workloads += islice(new, place - len(workloads))
            workloads += before.workloads[since : since + length]
        known = {reason: reason for reason in before.reasons}
        reasons = tuple([known.get(reason, reason) for reason in found.pop(_REASONS)])
        told = self._told = Verdicts(tuple(workloads), reasons, found.pop(_WHICH), found.pop(_ENDS))
        rows = {name: tuple(it) for name, it in found.items()}
        return Decided(number, Plan(**rows, verdicts=told, wake=wake), took)

    def _parts(self) -> Iterator[Any]:
        unpickler = pickle.Unpickler(self)  # by the server over a private socket  # nosec B301
        while (part := unpickler.load()) is not None:
            yield part

    # the file that the Unpickler reads; no read crosses the end of a piece
    def read(self, size: int) -> bytes:
        return self._piece.read(size) or self._next().read(size)

    def readline(self) -> bytes:
        return self._piece.readline() or self._next().readline()

    def _next(self) -> io.BytesIO:
        if not self._pipe.poll(self._patience):
            raise TimeoutError
        self._piece = io.BytesIO(self._pipe.recv_bytes())
        return self._piece


def lean(row: R) -> R:
    """The row without the fields that the core never reads."""
    return replace(row, **LEFT_OUT) if isinstance(row, Workload) else row


def _pieces(values: Sequence[Any], size: int = PIECE) -> Iterator[Sequence[Any]]:
    for at in range(0, len(values), size):
        yield values[at : at + size]

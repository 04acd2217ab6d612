"""Decides recorded cycles again: `python -m pliant.store.rerun FILE`. PYTHONPATH can select another core.

Run as a file (`python -P .../rerun.py`), it uses the `pliant.model` and `pliant.sched` that Python finds,
which may be another version; it always reads rows with the code of its own version.
"""

import argparse
import hashlib
import importlib
import importlib.util
import io
import json
import sys
import zipfile
import zlib
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from itertools import chain, count, repeat
from operator import attrgetter, sub
from pathlib import Path
from typing import Any, cast, get_args

VERSION = 5
"""Version of the record's lines and of what a plan's checksum covers; others cannot be compared."""


ENCODER = json.JSONEncoder(separators=(",", ":"))
"""Writes lines, and what checksums cover, without blanks."""


class Unreadable(ValueError):
    """This program cannot decide the record again; the text says why."""


def canonical(value: Any) -> Any:
    """A value as JSON can hold it, equal for equal values in every process; a dataclass as its fields."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    parts = _values(cast(Hashable, kind))
    if parts is not None:
        found = parts(value)
        if _PLAIN.issuperset(map(type, found)):
            return [kind.__name__, *found]
        return [kind.__name__, *map(canonical, found)]
    if isinstance(value, Enum):
        return value.value
    return [canonical(item) for item in getattr(value, "told", value)]


_PLAIN = frozenset({int, str, bool, type(None)})


@cache
def _values(kind: Any) -> Callable[[Any], tuple[Any, ...]] | None:
    """Returns all fields of a dataclass as a tuple; None for other classes, and for those with `told`."""
    if not is_dataclass(kind) or hasattr(kind, "told"):
        return None
    names = [field.name for field in fields(kind)]
    get = attrgetter(*names) if names else lambda value: ()
    return get if len(names) != 1 else lambda value: (get(value),)


def digest(plan: Any) -> str:
    """Checksum of a plan, equal for equal plans; a reason that verdicts share counts once."""
    return Checksums().of(plan)


class Checksums:
    """Checksums of successive plans: parts that a plan shares with the last one are not encoded again."""

    def __init__(self) -> None:
        self._parts: dict[str, tuple[Any, Any]] = {}  # by part: its value in the last plan, its encoding
        self._reasons: dict[Any, str] = {}  # likewise: reasons as text

    def of(self, plan: Any) -> str:
        """The checksum of the next plan, in hexadecimal digits."""
        names = _names(cast(Hashable, type(plan)))
        workloads, reasons, which = _columns(plan.verdicts)
        told = [getattr(plan, name) for name in names]
        found = self._part("head", (told, reasons), self._head).copy()
        found.update(self._part("workloads", workloads, _lines))
        if sys.byteorder == "big":
            which = which[:]
            which.byteswap()
        found.update(which)
        return cast(str, found.hexdigest())

    def _part(self, name: str, value: Any, made: Callable[[Any], Any]) -> Any:
        known = self._parts.get(name)
        if known is None or known[0] != value:
            known = self._parts[name] = value, made(value)
        return known[1]

    def _head(self, value: tuple[Sequence[Any], Sequence[Any]]) -> Any:
        """The checksum of all but the columns, to be continued."""
        told, reasons = value
        known = self._reasons
        texts = [known.get(reason) or _text(reason) for reason in reasons]
        self._reasons = dict(zip(reasons, texts, strict=True))
        rest = [self._part(f"rest{at}", it, _text) for at, it in enumerate(told)]
        return hashlib.sha256(f"[[{','.join(rest)}],[{','.join(texts)}]]\n\n".encode())


def _columns(told: Any) -> tuple[Sequence[str], Sequence[Any], "array[int]"]:
    """Of verdicts: the ids of workloads, the distinct reasons, and the index of each workload's reason."""
    if not isinstance(told, tuple) and hasattr(told, "which"):
        if len(told.which) == len(told.workloads):
            return told.workloads, told.reasons, told.which
        lengths = map(sub, told.ends, chain((0,), told.ends))
        return told.workloads, told.reasons, array("q", chain.from_iterable(map(repeat, told.which, lengths)))
    # older versions have runs, or single verdicts
    runs = [(it.reason, 1) for it in told] if isinstance(told, tuple) else told.runs
    workloads = [it.workload for it in told] if isinstance(told, tuple) else told.workloads
    distinct = {id(reason): reason for reason, _ in runs}
    number = dict(zip(distinct, count(), strict=False))
    each = chain.from_iterable(repeat(number[id(reason)], length) for reason, length in runs)
    return workloads, list(distinct.values()), array("q", each)


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.name != "verdicts")


def _text(value: Any) -> str:
    return ENCODER.encode(canonical(value))


def _lines(values: Sequence[str]) -> bytes:
    return ("\n".join(values) + "\n" if values else "").encode()


# ---------------------------------------------------------------------- reading


def lines_of(data: bytes, torn: Callable[[int], None] = lambda number: None) -> Iterator[dict[str, Any]]:
    """Lines of a record, or of the one in a debug bundle, up to a `torn` line. Raises Unreadable."""
    if data[:2] == b"PK":
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                if "replay.jsonl" not in archive.namelist():
                    raise Unreadable("this bundle has no replay.jsonl: its server recorded no cycles")
                data = archive.read("replay.jsonl")
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise Unreadable(f"this bundle is cut off or damaged: {error}") from None
    for number, line in enumerate(data.splitlines(), 1):
        try:
            entry = json.loads(line)
        except ValueError:
            torn(number)  # the server ended while it wrote, or its disk was full
            return
        if not isinstance(entry, dict) or "v" not in entry:
            raise Unreadable(f"line {number} is no line of a record")
        if entry["v"] != VERSION:
            other = (
                f"{'a newer' if entry['v'] > VERSION else 'an older'} Pliant ({entry.get('program', '?')})"
            )
            raise Unreadable(f"it was recorded by {other}; this one reads version {VERSION}")
        yield entry


def _own(folder: str, module: str) -> Any:
    """Loads a module of this version, whatever `pliant` Python finds."""
    name, path = f"pliant_rerun_{module}", Path(__file__).parent.parent / folder / f"{module}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    found = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


class Replay:
    """A world that follows a record."""

    def __init__(self) -> None:
        codec = _own("store", "codec")
        if importlib.util.find_spec("pliant.compiled"):  # older versions have none
            importlib.import_module("pliant.compiled")  # ignores compiled parts that do not fit
        self.unknown: dict[str, int] = {}  # classes that this core lacks: number of their rows
        self._codecs: dict[str, Any] = {}
        self._settings = codec.Codec(importlib.import_module("pliant.sched.settings").Settings)
        self._decide = importlib.import_module("pliant.sched.cycle").decide
        world = importlib.import_module("pliant.sched.world")
        if not hasattr(world, "World"):  # in older versions the module itself has it
            world = importlib.import_module("pliant.sched.world.state")
        self._world_class = world.World
        for kind in get_args(world.Row):
            self._codecs[kind.__name__] = codec.Codec(kind)
        self._rows = _own("wire", "record").Rows()
        self.world: Any = None
        self.settings: Any = None

    def follow(self, entry: Mapping[str, Any]) -> None:
        """Applies the settings and rows of one recorded cycle."""
        if entry.get("settings") is not None:
            self.settings = self._settings.decode(json.dumps(entry["settings"]))
        if entry.get("base") is not None:
            self.world = self._world_class()
        for name, body, gone in self._rows.of(entry):
            self._apply(name, body, gone)

    def _apply(self, name: str, body: Any, gone: bool) -> None:
        codec = self._codecs.get(name)
        if codec is None:
            self.unknown[name] = self.unknown.get(name, 0) + 1
            return
        row = codec.decode(json.dumps(body))
        (self.world.drop if gone else self.world.put)(row)

    def plan(self, now: int) -> Any:
        return self._decide(self.world, now, self.settings)


def rerun(entries: Iterable[Mapping[str, Any]], only: tuple[str, int] | None = None) -> dict[str, Any]:
    """Decides all cycles again, or one (`only`): ("cycle", number), or ("at", ms) for the last until then."""
    replay = Replay()
    chosen: dict[str, Any] | None = None
    cycles = same = 0
    differ: list[int] = []
    for entry in entries:
        if chosen is not None and only is not None and only[0] == "at" and entry["now"] > only[1]:
            break
        replay.follow(entry)
        if replay.world is None:
            continue  # before the first whole world
        if only is not None and only[0] == "cycle" and entry["cycle"] != only[1]:
            continue
        told = digest(plan := replay.plan(entry["now"]))
        cycles += 1
        if told == entry["plan"]:
            same += 1
        else:
            differ.append(entry["cycle"])
        if only is not None:
            chosen = _shown(entry, plan, told)
            if only[0] == "cycle":
                break
    if only is not None and chosen is None:
        raise Unreadable(f"there is no {only[0]} {only[1]} in this record")
    found = {"cycles": cycles, "same": same, "differ": differ[:100], "unknown": replay.unknown}
    return {**found, "chosen": chosen}


def _shown(entry: Mapping[str, Any], plan: Any, told: str) -> dict[str, Any]:
    return {
        "epoch": entry["epoch"],
        "cycle": entry["cycle"],
        "now": entry["now"],
        "same": told == entry["plan"],
        "recorded": entry["plan"],
        "digest": told,
        "decisions": [
            {
                "verb": canonical(it.verb),
                "action": it.action,
                "workload": it.workload,
                "gpuBefore": it.gpu_before,
                "gpuAfter": it.gpu_after,
                "reason": _said(it.reason, entry["now"]),
            }
            for it in plan.decisions
        ],
        "verdicts": [
            {"position": it.position, "workload": it.workload, "reason": _said(it.reason, entry["now"])}
            for it in plan.verdicts
        ],
        "starts": [str(it.attempt) for it in plan.starts],
        "stops": [str(it.attempt) for it in plan.stops],
    }


def _said(reason: Any, now: int) -> str:
    """The reason's text by the deciding version; in older versions it does not depend on the time."""
    text = reason.text
    return str(text(now) if callable(text) else text)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="pliant.store.rerun")
    parser.add_argument("--cycle", type=int)
    parser.add_argument("--at", type=int, help="ms since the epoch")
    parser.add_argument("file", help="a record or a debug bundle; -: standard input")
    given = parser.parse_args(argv)
    only = ("cycle", given.cycle) if given.cycle is not None else None
    only = ("at", given.at) if given.at is not None else only
    try:
        data = sys.stdin.buffer.read() if given.file == "-" else Path(given.file).read_bytes()
        found = rerun(lines_of(data), only)
    except (ValueError, OSError, ImportError) as error:
        sys.stderr.write(f"pliant: {error}\n")
        return 1
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

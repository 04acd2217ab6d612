"""Removes the names from a debug bundle, so that it can be shared; the result replays as before.

`python -m pliant.store.redact < bundle.zip > redacted.zip`. Workloads, projects, departments, users and nodes
get numbers (nodes in the order of their names, which decides between equals). Command lines, images, folders,
labels of workloads and names of variables are emptied; the log and histories, which are free text, are left
out.
"""

import io
import json
import sys
import zipfile
from collections.abc import Iterable, Mapping
from typing import Any

from pliant.store.rerun import Replay, digest, lines_of
from pliant.wire.record import Rows

LEFT_OUT = ("server.log", "history/")
"""Prefixes of the names of files in a bundle that are free text."""


SAID = {
    "namespace": str,  # made from the project's name
    "command": list,
    "args": list,
    "working_dir": str,
    "path": str,
    "image": str,
    "variables": list,
    "captured": list,
    "description": str,
    "phase_message": str,
    "annotations": list,
}
"""Fields that users write and the scheduler never reads: command lines may contain anything."""

PEOPLE = ("user", "owner", "cancelled_by")
"""Keys whose values name users and accounts."""


def redacted(bundle: bytes) -> bytes:
    """The same bundle without names. Raises Unreadable if its record cannot be read."""
    target = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(bundle)) as source,
        zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as out,
    ):
        kept = [name for name in source.namelist() if not name.startswith(LEFT_OUT)]
        record = list(_whole(lines_of(bundle))) if "replay.jsonl" in kept else []
        tables = {name: json.loads(source.read(name)) for name in kept if name.endswith(".json")}
        names = _names([*tables.values(), *record])
        for name, table in tables.items():
            out.writestr(name, json.dumps(_renamed(table, names), indent=1))
        if record:
            out.writestr("replay.jsonl", "".join(_sealed(record, names)))
    return target.getvalue()


def _whole(record: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    """The same lines with whole rows: the meaning of a field depends on the fields beside it."""
    rows = Rows()
    for entry in record:
        told = [[*it] for it in rows.of(entry)]
        yield entry if entry.get("base") is not None else {**entry, "news": told}


def _sealed(record: Iterable[dict[str, Any]], names: Mapping[str, str]) -> Iterable[str]:
    """Renamed lines with checksums of their own plans; "differs" for lines that did not replay before."""
    before, after = Replay(), Replay()
    for entry in record:
        other = _renamed(entry, names)
        before.follow(entry)
        after.follow(other)
        if before.world is not None:
            good = digest(before.plan(entry["now"])) == entry["plan"]
            other["plan"] = digest(after.plan(entry["now"])) if good else "differs"
        yield json.dumps(other, separators=(",", ":")) + "\n"


def _names(values: Iterable[Any]) -> dict[str, str]:
    """Every name to hide, and its replacement."""
    found: dict[str, dict[str, None]] = {"workload": {}, "queue": {}, "user": {}, "node": {}}
    for value in values:
        _collect(value, found)
    told: dict[str, str] = {}
    for kind, some in found.items():
        ordered = sorted(some) if kind == "node" else list(some)
        for number, name in enumerate(ordered, 1):
            told.setdefault(name, f"{kind}-{number:05}")
    for plain in ("default", "", "local", "scheduler"):
        told.pop(plain, None)
    return told


_KINDS = {"Workload": "workload", "Project": "queue", "Department": "queue", "Node": "node"}


def _collect(value: Any, found: dict[str, dict[str, None]]) -> None:
    if isinstance(value, list):
        if len(value) >= 2 and isinstance(value[0], str) and isinstance(value[1], dict):
            kind = _KINDS.get(value[0])
            if kind is not None and isinstance(value[1].get("name"), str):
                found[kind][value[1]["name"]] = None
        for item in value:
            _collect(item, found)
    elif isinstance(value, dict):
        for key in PEOPLE:
            if isinstance(value.get(key), str):
                found["user"][value[key]] = None
        named = value.get("name")
        if isinstance(named, str):
            if "serial" in value and "groups" in value:
                found["workload"][named] = None
            elif "quotas" in value:
                found["queue"][named] = None
            elif "gpus" in value and "draining" in value:
                found["node"][named] = None
        for item in value.values():
            _collect(item, found)


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    if isinstance(value, dict):
        said = {key for key, kind in SAID.items() if isinstance(value.get(key), kind)}
        if "serial" in value and "groups" in value:
            said |= {"labels", "shared"} & value.keys()
        return {key: type(item)() if key in said else _renamed(item, names) for key, item in value.items()}
    return value


def main() -> int:
    try:
        sys.stdout.buffer.write(redacted(sys.stdin.buffer.read()))
    except (ValueError, zipfile.BadZipFile) as error:
        sys.stderr.write(f"pliant: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

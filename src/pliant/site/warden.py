"""Reads warden.conf for the server, by the rules of the warden itself, so that both agree."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pliant.site.trusted import Wrong, lines_of, unknown

SEVERAL = ("deny-users", "gpu", "gpu-common", "device")
"""Keys that may come more than once."""

FOLDERS = ("supervisor", "work", "runtime", "state", "group")
ONCE = ("server-user", "min-uid", "allow-group", *FOLDERS, "strays", "cpu")
NEEDED = ("server-user", "supervisor")


@dataclass(frozen=True, slots=True)
class WardenConf:
    """docs/reference/warden.md says what each key means."""

    server: str
    supervisor: Path
    least: int = 1000  # lowest uid of a person
    work: Path = Path("/var/lib/pliant-work")
    runtime: Path = Path("/run/pliant-warden")
    said: Mapping[str, str] = field(default_factory=dict)  # the keys that come once, as they were written


def read(path: Path) -> WardenConf:
    """Raises Wrong, which names the line."""
    said: dict[str, str] = {}
    for number, line in enumerate(lines_of(path), 1):
        key, _, value = line.partition("#")[0].strip().replace("\t", " ").partition(" ")
        if not key:
            continue
        where, value = f"{path} line {number}", value.strip()
        if key not in ONCE and key not in SEVERAL:
            raise unknown(where, key, (*ONCE, *SEVERAL))
        if not value:
            raise Wrong(f"{where}: {key} has no value.")
        if key in said:
            raise Wrong(f"{where}: {key} is there twice. Leave one of the lines out.")
        if key in FOLDERS and not value.startswith("/"):
            raise Wrong(f"{where}: {key} {value!r} is no absolute path.")
        if key == "min-uid" and not (value.isascii() and value.isdecimal() and int(value)):
            raise Wrong(f"{where}: min-uid {value!r} is not a number above 0.")
        if key in ONCE:
            said[key] = value
    for key in NEEDED:
        if key not in said:
            raise Wrong(f"{path}: {key} is missing. docs/reference/warden.md has an example.")
    made = WardenConf(said["server-user"], Path(said["supervisor"]), said=said)
    return WardenConf(
        made.server,
        made.supervisor,
        int(said.get("min-uid", made.least)),
        Path(said.get("work", made.work)),
        Path(said.get("runtime", made.runtime)),
        said,
    )

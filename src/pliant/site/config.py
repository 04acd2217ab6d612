"""config.yaml: the settings that a shared server reads when it starts. An unknown key is an error."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from pliant.site.trusted import Wrong, lines_of, unknown

PLACE = Path("/etc/pliant/config.yaml")
STRAYS = ("report", "stop")
LARGEST = 2**16
"""Most characters of the file."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key of config.yaml."""

    name: str
    about: str
    default: str  # as written in the file


@dataclass(frozen=True, slots=True)
class Config:
    """docs/reference/config.md says what each key means; a field has the name of its key."""

    state: Path = Path("/var/lib/pliant")
    socket: Path = Path("/run/pliant/pliant.sock")
    console: int = 8020  # port of 127.0.0.1 for the web pages alone; 0: none
    warden: Path = Path("/etc/pliant/warden.conf")
    simulate: tuple[str, ...] = ()
    connections: int = 64  # of one account at a time; 0: no limit
    submissions: int = 20  # of one account in a second; 0: no limit
    commands: int = 16  # of one account inside jobs at a time; 0: no limit
    streams: int = 32  # of one account at a time; 0: no limit
    tasks: int = 512  # of one workload; 0: no limit
    strays: str = "report"  # or stop
    openid: Path | None = None  # settings of an OpenID Connect provider; None: there is none
    pending: int = 1000  # jobs of one account, in a new state folder; 0: no limit


KEYS = (
    Key("state", "Folder of the server's state; its account alone may open it.", "/var/lib/pliant"),
    Key(
        "socket",
        "Where accounts reach the server, if no service manager hands it over.",
        "/run/pliant/pliant.sock",
    ),
    Key("console", "Port of 127.0.0.1 for the web console alone; 0: none.", "8020"),
    Key("warden", "Configuration of the warden, which starts the jobs.", "/etc/pliant/warden.conf"),
    Key("simulate", "Simulated nodes instead of the GPUs of this machine: [1x2, 2x4:16G].", "[]"),
    Key("connections", "Connections that one account may have at a time; 0: no limit.", "64"),
    Key("submissions", "Submissions of one account in a second, 5 times as many at once; 0: no limit.", "20"),
    Key("commands", "Commands of one account inside jobs at a time (pliant exec); 0: no limit.", "16"),
    Key("streams", "Logs and changes that one account reads at a time; 0: no limit.", "32"),
    Key("tasks", "Tasks of one workload; 0: no limit.", "512"),
    Key("strays", "Processes that use GPUs outside of all jobs: report (they are named) or stop.", "report"),
    Key("openid", "Settings of a login provider (OpenID Connect): openid.yaml; none: no provider.", "none"),
    Key("pending", "Pending jobs of one account, set at the first start; later: pliant limit set.", "1000"),
)


class _Once(yaml.SafeLoader):
    """Refuses a duplicate key."""


def _mapping(loader: _Once, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[str] = set()
    for key, _ in node.value:
        if key.value in seen:
            raise yaml.constructor.ConstructorError(None, None, f"{key.value} is there twice", key.start_mark)
        seen.add(key.value)
    return loader.construct_mapping(node, deep=True)


_Once.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def read(path: Path) -> Config:
    """The settings of the file; the defaults if there is none. Raises Wrong, which names the key or line."""
    if not path.exists() and not path.is_symlink():
        return Config()
    said = keyed(path, [key.name for key in KEYS])
    return Config(**{name: _value(path, name, value) for name, value in said.items()})


def keyed(path: Path, known: Sequence[str], *, rooted: bool = True) -> dict[str, Any]:
    """The keys of a file and their unchecked values. Raises Wrong, also for an unknown key."""
    text = "\n".join(lines_of(path, rooted=rooted))
    if len(text) > LARGEST:
        raise Wrong(f"{path} has more than {LARGEST} characters.")
    try:
        said = yaml.load(text, _Once)  # _Once is a SafeLoader  # nosec B506
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}" if mark is not None else ""
        raise Wrong(f"{path}{where}: {getattr(error, 'problem', None) or error}.") from error
    except RecursionError as error:
        raise Wrong(f"{path} has lists within lists that are too deep.") from error
    if said is None:
        return {}
    if not isinstance(said, dict):
        raise Wrong(f"{path} has no keys. Write lines such as `{known[0]}: value`.")
    for name in said:
        if name not in known:
            raise unknown(str(path), str(name), known)
    return said


def _value(path: Path, name: str, value: object) -> Any:
    kind = type(getattr(Config(), name))
    if name == "openid" and value == "none":
        return None
    if kind is int:
        if type(value) is int and 0 <= value <= 1_000_000:
            return value
        raise Wrong(f"{path}: {name} is {_told(value)}. Give a whole number from 0 to 1000000.")
    if kind is str:
        if value in STRAYS:
            return value
        raise Wrong(f"{path}: {name} is {_told(value)}. Give {' or '.join(STRAYS)}.")
    if kind is tuple:
        if isinstance(value, list) and all(isinstance(it, str) for it in value):
            return tuple(value)
        raise Wrong(f"{path}: {name} is {_told(value)}. Give a list of texts, as in [1x2].")
    if (
        isinstance(value, str)
        and value.startswith("/")
        and "\0" not in value
        and ".." not in value.split("/")
    ):
        return Path(value)
    raise Wrong(f"{path}: {name} is {_told(value)}. Give an absolute path.")


def _told(value: object) -> str:
    return repr(value)[:60]


def template() -> str:
    """The file as it is installed: every key with its default, as a comment."""
    lines = ["# Settings of the shared server. Check them: pliant config check", ""]
    for key in KEYS:
        lines += [f"# {key.about}", f"# {key.name}: {key.default}", ""]
    return "\n".join(lines)


def shown(config: Config) -> Mapping[str, str]:
    """Keys and values as they are written in the file."""
    found: dict[str, str] = {}
    for field in fields(config):
        value = getattr(config, field.name)
        text = "none" if value is None else str(value)
        found[field.name] = f"[{', '.join(value)}]" if isinstance(value, tuple) else text
    return found

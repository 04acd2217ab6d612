"""Finds the server, and the Unix socket or token that gives access to it.

The first of these decides: `--server`, `--state`, `PLIANT_SERVER`, `PLIANT_SOCKET`, `PLIANT_URL` (set inside
jobs), `PLIANT_STATE`, the last `login`, the user's own state folder, the socket that the accounts of this
machine share. The address `unix:PATH` is a socket.
"""

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from pliant.client.config import Config
from pliant.client.errors import PliantError, Unauthorized, Unreachable

UNIX = "unix:"
"""Prefix of the address of a server that is reached only through its Unix socket."""

SHARED = "/run/pliant/pliant.sock"
"""Default socket of the server that the accounts of this machine share."""


class Endpoint(NamedTuple):
    url: str
    token: str | None
    state: str | None  # state folder of a local server; None if found by URL or socket
    socket: str | None = None  # its Unix socket, which needs no token; None: use the URL
    authority: str | None = None  # file of the certificates that verify it; None: the system's

    @property
    def key(self) -> str:
        """Key of the current project in Config: the state folder, since the port may change; else the URL."""
        return self.state or self.url


def state_folder(given: str | None = None, env: Mapping[str, str] = os.environ) -> str:
    """The absolute path of the local server's state folder. Raises PliantError if the account has no home."""
    path = given or env.get("PLIANT_STATE")
    if not path:
        base = env.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
        if base.startswith("~"):
            raise PliantError(
                "This account has no home folder.", "Name a state folder: --state or PLIANT_STATE."
            )
        path = os.path.join(base, "pliant")
    return os.path.abspath(os.path.expanduser(path))


def server_record(state: str, role: str = "server") -> dict[str, Any] | None:
    """The record that a server wrote into its state folder (url, pid, ...); None if there is none.

    `role`: "server" for the leading server, "standby" for the standby server. Raises Unreachable.
    """
    path = os.path.join(state, f"{role}.json")
    try:
        with open(path, encoding="utf-8") as file:
            record = json.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Unreachable(f"Cannot read {path}: {error.strerror}") from error
    except ValueError:
        return None  # half written, or cut off by a full disk: counts as absent
    return record if isinstance(record, dict) and isinstance(record.get("url"), str) else None


def locate(
    server: str | None = None,
    state: str | None = None,
    *,
    config: Config | None = None,
    env: Mapping[str, str] = os.environ,
) -> Endpoint:
    """Find the server. Raises Unreachable, with advice, if there is none."""
    url = server
    if url is None and state is None:
        url = env.get("PLIANT_SERVER")
        if not url and env.get("PLIANT_SOCKET"):
            url = UNIX + env["PLIANT_SOCKET"]
        url = url or env.get("PLIANT_URL")
        if not url and not env.get("PLIANT_STATE") and config is not None:
            url = config.server
    if url and url.startswith(UNIX):
        return Endpoint(url, None, None, url.removeprefix(UNIX))
    if url:
        if "://" not in url:
            url = f"http://{url}"
        url = url.rstrip("/")
        token = _token_from(env)
        if token is None and config is not None:
            token = config.token(url)
        if token is None:
            token = _token_of_local(url, state_folder(state, env))
        return Endpoint(url, token, None, None, authority_of(url, state, config=config, env=env))
    folder = state_folder(state, env)
    record = server_record(folder)
    if record is None and state is None and not env.get("PLIANT_STATE") and os.path.exists(SHARED):
        return Endpoint(UNIX + SHARED, None, None, SHARED)
    if record is None:
        raise Unreachable(
            "No Pliant server runs here.", f"Start one with `pliant up` (state folder {folder})."
        )
    token = _token_from(env) if state is None else None
    url, authority = record["url"].rstrip("/"), authority_in(folder, record)
    if token is not None:
        return Endpoint(url, token, folder, None, authority)
    if isinstance(record.get("socket"), str):
        return Endpoint(url, None, folder, os.path.join(folder, record["socket"]), authority)
    return Endpoint(url, local_token(folder), folder, None, authority)


def authority_of(
    url: str,
    state: str | None = None,
    *,
    config: Config | None = None,
    env: Mapping[str, str] = os.environ,
) -> str | None:
    """File of the certificates that verify the server at that URL; None: the system's, or no https://."""
    if not url.startswith("https:"):
        return None
    if named := env.get("PLIANT_CA"):
        return named
    if config is not None and (kept := config.authority(url)):
        return kept
    folder = state_folder(state, env)
    records = (server_record(folder), server_record(folder, "standby"))
    own = (record for record in records if record is not None and record["url"].rstrip("/") == url)
    return next((authority_in(folder, record) for record in own), None)


def authority_in(folder: str, record: Mapping[str, Any]) -> str | None:
    """File of the certificates that verify the server of that state folder, as its record names it."""
    name = record.get("authority")
    return os.path.join(folder, name) if isinstance(name, str) else None


def local_token(state: str) -> str:
    """The token of the server of that state folder. Raises PliantError."""
    return _read_token(os.path.join(state, "token"))


def _token_from(env: Mapping[str, str]) -> str | None:
    if token := env.get("PLIANT_TOKEN"):
        return token.strip()
    if path := env.get("PLIANT_TOKEN_FILE"):
        return _read_token(path)
    return None


def _token_of_local(url: str, state: str) -> str | None:
    """The token in the token file of `state` if that URL is of its server; else None."""
    records = (server_record(state), server_record(state, "standby"))
    if all(record is None or record["url"].rstrip("/") != url for record in records):
        return None
    return local_token(state)


def _read_token(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except FileNotFoundError as error:
        raise Unauthorized(
            f"There is no token file {path}.", "Is this the state folder of the server?"
        ) from error
    except PermissionError as error:
        raise Unauthorized(
            f"You may not read {path}.", "The server belongs to another user: `pliant login`."
        ) from error
    except OSError as error:
        raise PliantError(f"Cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PliantError(f"{path} does not hold a token: it is not text.") from error

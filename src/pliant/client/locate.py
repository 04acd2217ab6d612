"""Where the server is and what opens it: its Unix socket, or a token.

`--server`, `PLIANT_SERVER`, `PLIANT_SOCKET`, `PLIANT_URL` (set inside jobs), then a state folder named by
`--state` or `PLIANT_STATE`, then the last `login`, then the user's own state folder, then the socket that the
accounts of this machine share. `unix:PATH` is a socket.
"""

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from pliant.client.config import Config
from pliant.client.errors import PliantError, Unauthorized, Unreachable

UNIX = "unix:"
"""How the address of a server begins that is reached by its Unix socket alone."""

SHARED = "/run/pliant/pliant.sock"
"""Where a server is that accounts of this machine share, unless another place is named."""


class Endpoint(NamedTuple):
    url: str
    token: str | None
    state: str | None  # state folder of a local server; None when found by URL
    socket: str | None = None  # its Unix socket, which needs no token; None: it is reached by the URL

    @property
    def key(self) -> str:
        """Where the current project is remembered: a local server may change its port, not its folder."""
        return self.state or self.url


def state_folder(given: str | None = None, env: Mapping[str, str] = os.environ) -> str:
    """The local server's state folder, absolute; PliantError where there is no home for it."""
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
    """What a server wrote about itself into its state folder (url, pid, ...); None if there is nothing.

    `role`: "server" leads, "standby" stands by.
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
        return None  # being written, or cut off by a full disk: as good as absent
    return record if isinstance(record, dict) and isinstance(record.get("url"), str) else None


def locate(
    server: str | None = None,
    state: str | None = None,
    *,
    config: Config | None = None,
    env: Mapping[str, str] = os.environ,
) -> Endpoint:
    """Find the server; Unreachable with advice if there is none."""
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
        return Endpoint(url, token, None)
    folder = state_folder(state, env)
    record = server_record(folder)
    if record is None and state is None and not env.get("PLIANT_STATE") and os.path.exists(SHARED):
        return Endpoint(UNIX + SHARED, None, None, SHARED)
    if record is None:
        raise Unreachable(
            "No Pliant server runs here.", f"Start one with `pliant up` (state folder {folder})."
        )
    token = _token_from(env) if state is None else None
    if token is not None:
        return Endpoint(record["url"].rstrip("/"), token, folder)
    if isinstance(record.get("socket"), str):
        return Endpoint(record["url"].rstrip("/"), None, folder, os.path.join(folder, record["socket"]))
    return Endpoint(record["url"].rstrip("/"), local_token(folder), folder)


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
    """The token file, if that URL is the local server's own."""
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

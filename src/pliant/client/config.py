"""The settings that a user's machine remembers: the server of the last login, current projects, tokens.

The file is `$PLIANT_CONFIG`, else `$XDG_CONFIG_HOME/pliant/config.json`; tokens are in `credentials.json`
(mode 0600) in the same folder.
"""

import json
import os
from collections.abc import Mapping
from typing import Any

from pliant.client.errors import PliantError


def config_path(env: Mapping[str, str] = os.environ) -> str:
    if path := env.get("PLIANT_CONFIG"):
        return path
    home = env.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(home, "pliant", "config.json")


class Config:
    """The remembered settings. A missing file or field reads as None; a broken file raises PliantError."""

    def __init__(self, path: str | None = None) -> None:
        self.path = path or config_path()
        self._data = _read(self.path)

    @property
    def server(self) -> str | None:
        """URL of the last login; None: use the server of the state folder."""
        value = self._data.get("server")
        return value if isinstance(value, str) else None

    def project(self, key: str) -> str | None:
        """The current project at a server; `key` is Endpoint.key."""
        return self._entry("projects", key)

    def cluster(self, key: str) -> str | None:
        return self._entry("clusters", key)

    def set_server(self, url: str | None) -> None:
        self._data["server"] = url
        _write(self.path, self._data)

    def set_project(self, key: str, name: str) -> None:
        self._data.setdefault("projects", {})[key] = name
        _write(self.path, self._data)

    def set_cluster(self, key: str, name: str) -> None:
        self._data.setdefault("clusters", {})[key] = name
        _write(self.path, self._data)

    def token(self, url: str) -> str | None:
        value = _read(self._credentials).get(url)
        return value if isinstance(value, str) else None

    def set_token(self, url: str, token: str | None) -> None:
        """Remember a token; None forgets it."""
        tokens = _read(self._credentials)
        tokens.pop(url, None)
        if token is not None:
            tokens[url] = token
        _write(self._credentials, tokens)

    def authority(self, url: str) -> str | None:
        """File of the certificates that verify that server; None if none was given."""
        path = self._authority_path(url)
        return path if os.path.exists(path) else None

    def set_authority(self, url: str, certificates: str) -> None:
        """Remember the certificates (PEM) that verify a server."""
        _write_text(self._authority_path(url), certificates)

    def _authority_path(self, url: str) -> str:
        name = "".join(letter if letter.isalnum() or letter in ".-" else "_" for letter in url)
        return os.path.join(os.path.dirname(self.path), "authorities", f"{name}.pem")

    @property
    def _credentials(self) -> str:
        return os.path.join(os.path.dirname(self.path), "credentials.json")

    def _entry(self, table: str, key: str) -> str | None:
        entries = self._data.get(table)
        value = entries.get(key) if isinstance(entries, dict) else None
        return value if isinstance(value, str) else None


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise PliantError(f"Cannot read {path}: {error}", "Correct the file or remove it.") from error
    if not isinstance(data, dict):
        raise PliantError(f"{path} does not hold a JSON object", "Correct the file or remove it.")
    return data


def _write(path: str, data: Mapping[str, Any]) -> None:
    _write_text(path, json.dumps(data, indent=2, sort_keys=True) + "\n")


def _write_text(path: str, text: str) -> None:
    """Replace the file atomically; only its owner can read it. Raises PliantError."""
    if path.startswith("~"):
        raise PliantError("This account has no home folder to remember it in.", "Name a file: PLIANT_CONFIG.")
    temporary = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError as error:
        raise PliantError(f"Cannot write {path}: {error.strerror or error}") from error

"""openid.yaml: the OpenID Connect provider that authenticates people."""

import logging
import re
from pathlib import Path
from urllib.parse import urlsplit

from pliant.model.identity import Provider
from pliant.model.rights import ROLES, role_named
from pliant.site.trusted import Wrong

log = logging.getLogger(__name__)

NEEDED = ("name", "issuer", "client", "secret-file", "address")
LISTS = ("scopes", "allowed", "roles")
CLAIMS = ("groups", "email", "uid")
KEYS = (*NEEDED, *CLAIMS, *LISTS)
OF_THE_ACCOUNT = ("gid", "supplementaryGroups", "supplementary-groups")
"""Claims that Run:ai maps; here they are refused."""

_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,128}")
_LOCAL = ("127.0.0.1", "localhost", "::1")


def provider_of(file: str, *, rooted: bool, demanded: bool) -> Provider | None:
    """The provider of a server that starts. Raises Wrong if it is `demanded` and the file cannot be used.

    A server that reuses the settings of the last one starts without a provider rather than not at all.
    """
    if file == "none":
        return None
    try:
        return read(Path(file), rooted=rooted)
    except Wrong as error:
        if demanded:
            raise
        log.error("logins by OpenID Connect are refused: %s", error)
        return None


def read(path: Path, *, rooted: bool) -> Provider:
    """The provider that the file describes. Raises Wrong, which names the key or the line.

    `rooted`: only a file that root alone can change is accepted, as on a machine that accounts share.
    """
    from pliant.site.config import keyed  # it imports YAML, which most servers never need

    said = keyed(path, (*KEYS, *OF_THE_ACCOUNT), rooted=rooted)
    for name in OF_THE_ACCOUNT:
        if name in said:
            raise Wrong(
                f"{path}: {name} cannot be taken from a claim: a job has the groups that its account has "
                "on this machine. Remove the key."
            )
    if "uid" in said and not rooted:
        raise Wrong(
            f"{path}: uid has no effect here: all jobs run as the account of this server. Remove the key."
        )
    for name in NEEDED:
        if name not in said:
            raise Wrong(f"{path}: the key {name} is missing. See docs/reference/openid.md")
    for name in (*NEEDED, *CLAIMS):
        value = said.get(name, name)
        if not (isinstance(value, str) and value and len(value) <= 1000 and value.isprintable()):
            raise Wrong(f"{path}: {name} is no text. Give one, in quotes if need be.")
    for name in ("issuer", "address"):
        _check_address(path, name, said[name])
    if not said["secret-file"].startswith("/"):  # the value may be the secret itself
        raise Wrong(f"{path}: secret-file is no absolute path. Write the secret to a file and name that.")
    lists = {name: _list(path, name, said[name]) for name in LISTS if name in said}
    scopes = lists.get("scopes", ("profile",))
    for scope in scopes:
        if _SCOPE.fullmatch(scope) is None:
            raise Wrong(f"{path}: scopes has {scope[:60]!r}. Give words without spaces.")
    return Provider(
        said["name"],
        said["issuer"],
        said["client"],
        said["secret-file"],
        said["address"].rstrip("/"),
        tuple(dict.fromkeys(("openid", *scopes))),
        said.get("groups", "groups"),
        said.get("email", "email"),
        said.get("uid", ""),
        lists.get("allowed", ()),
        tuple(_role(path, line) for line in lists.get("roles", ())),
    )


def _list(path: Path, name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, list) and all(isinstance(it, str) and it for it in value):
        return tuple(value)
    raise Wrong(f"{path}: {name} is {repr(value)[:60]}. Give a list of texts, as in [one, two].")


def _check_address(path: Path, name: str, value: str) -> None:
    try:
        parts = urlsplit(value)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise Wrong(f"{path}: {name} is {value[:60]!r}. Give an address such as https://host.") from error
    if not host or port == 0 or parts.query or parts.fragment or "@" in parts.netloc:
        raise Wrong(f"{path}: {name} is {value[:60]!r}. Give an address such as https://host.")
    if parts.scheme != "https" and not (parts.scheme == "http" and host in _LOCAL):
        raise Wrong(f"{path}: {name} is {value[:60]!r}. Give one that begins with https://.")


def _role(path: Path, line: str) -> tuple[str, int, str]:
    """`GROUP=ROLE` or `GROUP=ROLE@PROJECT`."""
    group, _, rest = line.rpartition("=")
    name, _, project = rest.partition("@")
    role = role_named(name)
    if not group or role is None:
        names = ", ".join(one.aliases[0] for one in ROLES)
        raise Wrong(
            f"{path}: roles has {line[:60]!r}. Write GROUP=ROLE or GROUP=ROLE@PROJECT. Roles: {names}."
        )
    return group.strip(), role.id, project.strip()

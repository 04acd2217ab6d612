"""Reads what a client sends to get a token: JSON or a form, with names in any of the usual spellings."""

import difflib
import json
from typing import Any, get_type_hints
from urllib.parse import parse_qsl

from pliant.control.errors import BadRequest
from pliant.wire.server import TokenRequest


def _plain(name: str) -> str:
    """clientID, clientId, ClientID and client_id are one name."""
    return name.replace("_", "").casefold()


_NAMES = {_plain(name): name for name in get_type_hints(TokenRequest)}
_OF_OAUTH = frozenset({"scope", "audience", "clientassertion", "clientassertiontype"})
"""Fields of a form that have no effect here; OAuth 2 requires that they are ignored."""


def credentials(body: bytes) -> dict[str, str]:
    """Each field by its name in TokenRequest, '' if it was not sent. Raises BadRequest."""
    is_json = body.lstrip()[:1] == b"{"
    found = dict.fromkeys(_NAMES.values(), "")
    for name, value in _json(body) if is_json else _form(body):
        if not is_json and _plain(name) in _OF_OAUTH:
            continue
        known = _NAMES.get(_plain(name))
        if known is None:
            near = difflib.get_close_matches(name, _NAMES.values(), 1)
            hint = f"Did you mean {near[0]}?" if near else f"The fields are {', '.join(_NAMES.values())}."
            raise BadRequest(f"There is no field {name[:60]!r} here.", hint, field=name[:60])
        if not isinstance(value, str) or "\0" in value:
            raise BadRequest(f"{known} must be text without NUL.", "Send it as text.", field=known)
        if found[known] not in ("", value):
            raise BadRequest(f"{known} was sent twice with different values.", "Send it once.", field=known)
        found[known] = value
    return found


def _form(body: bytes) -> list[tuple[str, Any]]:
    try:
        return list(parse_qsl(body.decode(), max_num_fields=50))
    except ValueError as error:
        raise BadRequest(
            "The body is not a form.", "Send application/x-www-form-urlencoded, or a JSON object."
        ) from error


def _json(body: bytes) -> list[tuple[str, Any]]:
    try:
        pairs: list[tuple[str, Any]] = json.loads(body, object_pairs_hook=lambda pairs: pairs)
    except (ValueError, RecursionError) as error:
        raise BadRequest("The body is not JSON.", "Send one object of text fields.") from error
    for name, value in pairs:
        for text in (name, value):
            if isinstance(text, str) and not text.isascii():
                _check_unicode(text)
    return [(name, value) for name, value in pairs if value is not None]


def _check_unicode(text: str) -> None:
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise BadRequest("The body is not valid Unicode text.", "Send no lone surrogates.")

"""Fetches JSON from another server: one answer, from that address only, limited in time and size."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.parse import urlencode, urlsplit


class Failed(Exception):
    """The server gave no such answer."""

    def __init__(self, why: str, status: int = 0, word: str = "") -> None:
        """`status`: HTTP status of a refusal; `word`: the OAuth 2 error code in it, as the server sent it."""
        super().__init__(why)
        self.status = status
        self.word = word


class Fetch:
    """Fetches JSON objects. Thread-safe."""

    def __init__(self, longest: float, most: int) -> None:
        """`longest`: seconds, `most`: bytes."""
        self._longest, self._most = longest, most
        self._opener = urllib.request.OpenerDirector()  # no redirects: an answer leads to no other server
        for handler in (
            urllib.request.ProxyHandler,
            urllib.request.HTTPHandler,
            urllib.request.HTTPSHandler,
            urllib.request.HTTPDefaultErrorHandler,
            urllib.request.HTTPErrorProcessor,
        ):
            self._opener.add_handler(handler())

    def __call__(
        self, address: str, form: Mapping[str, str] | None, headers: Mapping[str, str]
    ) -> Mapping[str, Any]:
        """The JSON object at that address; `form` is sent if it is given. Raises Failed."""
        data = urlencode(form).encode() if form is not None else None
        headers = {"Accept": "application/json", "User-Agent": "pliant", **headers}
        place = urlsplit(address).path
        try:
            with self._opener.open(
                urllib.request.Request(address, data, headers), timeout=self._longest
            ) as answer:
                body = self._read(answer)
        except urllib.error.HTTPError as error:
            with error:
                said = error.read(4096)
            raise Failed(f"it answered {error.code} to {place}", error.code, _refusal(said)) from error
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise Failed(getattr(reason, "strerror", None) or str(reason)[:100]) from error
        told = _parsed(body)
        if not isinstance(told, dict) or len(body) > self._most:
            raise Failed(f"its answer to {place} is not a JSON object")
        return told

    def _read(self, answer: HTTPResponse) -> bytes:
        """The whole body, or a little more than `most` bytes. Raises OSError, also if it takes too long."""
        end, body = time.monotonic() + self._longest, b""
        while (part := answer.read1(2**16)) and len(body) <= self._most:
            body += part
            if time.monotonic() > end:
                raise TimeoutError("timed out")
        return body


def _refusal(body: bytes) -> str:
    told = _parsed(body)
    return str(told.get("error", "")) if isinstance(told, dict) else ""


def _parsed(body: bytes) -> object:
    """None: it is no JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None

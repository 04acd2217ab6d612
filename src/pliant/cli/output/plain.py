"""Escapes control characters in names, messages and logs, which could control the reader's terminal."""

from __future__ import annotations

import re
import sys
from typing import Any

_TEXT = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028\\u2029\\u202a-\\u202e\\u2066-\\u2069]"
)
"""Control characters (except tab and line feed), line separators and characters that set text direction."""

_BYTES = re.compile(
    rb"(\x1b\[[0-9;]{0,32}m)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]|\xd8\x9c"
    rb"|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]"
)
"""The same in the bytes of a log, except carriage returns; group 1 is a colour, which is kept."""

_BEGUN = re.compile(rb"(\x1b(\[[0-9;]{0,32})?|\xc2|\xd8|\xe2[\x80\x81]?)\Z")
"""The beginning of one of these sequences at the end of a piece."""


def plain(text: str) -> str:
    """The text with the characters of _TEXT escaped as in JSON: \\u001b."""
    return _TEXT.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class Plain:
    """A text stream that writes only plain(text). Bytes written to `buffer` are not changed."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(text if text.isascii() and text.isprintable() else plain(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class LogScreen:
    """Prints pieces of a log: unchanged into a file or pipe, escaped on a terminal."""

    def __init__(self) -> None:
        self._guard = sys.stdout.isatty()
        self._kept = b""

    def show(self, piece: bytes) -> None:
        out = sys.stdout.buffer
        out.write(self.harmless(piece) if self._guard else piece)
        out.flush()

    def harmless(self, piece: bytes) -> bytes:
        """The escaped text to print now; an incomplete sequence at the end waits for the next piece."""
        text = self._kept + piece
        begun = _BEGUN.search(text)
        cut = begun.start() if begun is not None else len(text)
        self._kept = text[cut:]
        return _BYTES.sub(_written_out, text[:cut])


def show_bytes(piece: bytes) -> None:
    """Print bytes unchanged, with control sequences: for a user who asked for the job's terminal."""
    sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


def _written_out(found: re.Match[bytes]) -> bytes:
    return found[1] or b"".join(b"\\x%02x" % code for code in found[0])

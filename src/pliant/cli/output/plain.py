"""What others have written must not steer the reader's terminal: names, messages, logs."""

from __future__ import annotations

import re
import sys
from typing import Any

_TEXT = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028\\u2029\\u202a-\\u202e\\u2066-\\u2069]"
)
"""Control characters but tab and line feed, and those that turn the direction of what follows."""

_BYTES = re.compile(
    rb"(\x1b\[[0-9;]{0,32}m)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]|\xd8\x9c"
    rb"|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]"
)
"""The same in the bytes of a log, of which colours and carriage returns are let pass."""

_BEGUN = re.compile(rb"(\x1b(\[[0-9;]{0,32})?|\xc2|\xd8|\xe2[\x80\x81]?)\Z")
"""An end that may be the beginning of one of these."""


def plain(text: str) -> str:
    """With what could steer a terminal written out, as JSON does."""
    return _TEXT.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class Plain:
    """A stream of text that writes nothing else. Bytes pass by it, through `buffer`."""

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
    """Prints pieces of a log: as they are into a file or a pipe, harmless on a terminal."""

    def __init__(self) -> None:
        self._guard = sys.stdout.isatty()
        self._kept = b""

    def show(self, piece: bytes) -> None:
        out = sys.stdout.buffer
        out.write(self.harmless(piece) if self._guard else piece)
        out.flush()

    def harmless(self, piece: bytes) -> bytes:
        """What may be printed of it by now; the rest comes with the next piece."""
        text = self._kept + piece
        begun = _BEGUN.search(text)
        cut = begun.start() if begun is not None else len(text)
        self._kept = text[cut:]
        return _BYTES.sub(_written_out, text[:cut])


def show_bytes(piece: bytes) -> None:
    """As they are, also what steers a terminal: for who has asked for the terminal of a job."""
    sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


def _written_out(found: re.Match[bytes]) -> bytes:
    return found[1] or b"".join(b"\\x%02x" % code for code in found[0])

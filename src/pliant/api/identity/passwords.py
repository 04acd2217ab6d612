"""Hashes passwords and secrets, compares them in constant time, and slows down guesses."""

import hashlib
import secrets
import threading
import time
from collections.abc import Callable

from argon2 import PasswordHasher
from argon2.exceptions import VerificationError

from pliant.api.errors import STATUS, Unauthorized
from pliant.control.errors import BadRequest, Refused

LEAST, MOST = 8, 255
"""Characters of a password."""

FREE = 5
"""Wrong tries after which the next one must wait; the wait doubles with each."""

LONGEST = 300.0
"""Longest wait, in seconds."""

REMEMBERED = 10_000
"""Most pairs of name and address whose wrong tries are remembered."""

_hasher = PasswordHasher()
_NOBODYS = "$argon2id$v=19$m=65536,t=3,p=4$NSwHNXY41MFU2a/v8PUCZw$XuDNb2vVtGi/F8HtCTVcuMW2Y3ZOqjXGrYXKZ6ofydw"
"""Compared with if there is no such user, so that this takes as long. A hash of 16 random bytes that are kept
nowhere; a constant, because making it takes 0.1 s of each start."""


class Slow(Refused):
    """Too many wrong tries."""

    code = "too-many-tries"


STATUS[Slow] = 429


def hashed(password: str, least: int = LEAST) -> str:
    """The hash of a password of `least` to MOST characters. Raises BadRequest."""
    if not least <= len(password) <= MOST:
        raise BadRequest(
            f"A password has {least} to {MOST} characters, not {len(password)}.",
            "Choose a longer one." if len(password) < least else "Choose a shorter one.",
            field="newPassword",
        )
    return _hasher.hash(password)


def fits(password: str, kept: str | None) -> bool:
    """True if `kept` is the hash of that password; takes as long if there is no hash."""
    try:
        _hasher.verify(kept or _NOBODYS, password)
        return bool(kept)
    except VerificationError:
        return False


def temporary() -> str:
    """A password that must be changed at once, so that the rules for passwords need not hold for it."""
    return secrets.token_urlsafe(12)


def client_and_secret() -> tuple[str, str]:
    """A client id and a random secret of 256 bits."""
    return secrets.token_hex(8), secrets.token_urlsafe(32)


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


class Tries:
    """Counts wrong tries by name and address. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._wrong: dict[tuple[str, str], tuple[int, float]] = {}  # (wrong tries, when one is allowed)

    def check(self, name: str, address: str) -> None:
        """Raise Slow while the next try is not due."""
        with self._guard:
            left = self._wrong.get((name, address), (0, 0.0))[1] - self._clock()
        if left > 0:
            raise Slow(f"Too many failed logins for {name[:40]!r}.", f"Try again in {int(left) + 1} s.")

    def wrong(self, name: str, address: str) -> Unauthorized:
        """Count a wrong try; the error to raise."""
        with self._guard:
            if len(self._wrong) >= REMEMBERED:
                self._wrong.pop(next(iter(self._wrong)))
            count = self._wrong.get((name, address), (0, 0.0))[0] + 1
            wait = min(LONGEST, 2.0 ** (count - FREE)) if count >= FREE else 0.0
            self._wrong[name, address] = (count, self._clock() + wait)
        return Unauthorized("The name or the password is not valid.", "Ask an administrator to reset it.")

    def right(self, name: str, address: str) -> None:
        with self._guard:
            self._wrong.pop((name, address), None)

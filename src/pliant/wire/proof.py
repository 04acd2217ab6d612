"""How a server shows that it knows a token before the token is sent to it.

A port may be taken by another user's program once its server has ended. The client therefore names the token
by a part that opens nothing, and sends a number that it never used before. The answer is a keyed hash of that
number and of the address at which the server was reached: one fetched from another server is of no use.
"""

import hashlib
import hmac

PATH = "/proof"
LEAST, MOST = 16, 128
"""Characters of a nonce."""


def named(token: str) -> str:
    """What names a token and opens nothing: all before its last `.` or `:`, else a part of its hash."""
    return token[: max(token.rfind("."), token.rfind(":"), 0)] or key_of(token).hex()[:16]


def key_of(token: str) -> bytes:
    """What a server may keep in the place of a token."""
    return hashlib.sha256(token.encode()).digest()


def proof(key: bytes, nonce: str, host: str, port: int) -> str:
    """`host` and `port` are those of the server's own end of the connection."""
    return hmac.new(key, f"pliant proof {nonce} {host} {port}".encode(), hashlib.sha256).hexdigest()

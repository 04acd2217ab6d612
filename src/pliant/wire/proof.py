"""How a server proves that it knows a token before the client sends the token to it.

Another user's program may take a port once its server has ended. The client therefore names the token by a
part that opens nothing, and sends a number that it never used before. The answer is a keyed hash of that
number and of the address at which the server was reached: an answer fetched from another server does not
match.
"""

import hashlib
import hmac

PATH = "/proof"
LEAST, MOST = 16, 128
"""Characters of a nonce."""


def named(token: str) -> str:
    """The name of a token, which opens nothing: all before its last `.` or `:`, else a part of its hash."""
    return token[: max(token.rfind("."), token.rfind(":"), 0)] or key_of(token).hex()[:16]


def key_of(token: str) -> bytes:
    """The SHA-256 of a token, which a server may store instead of it."""
    return hashlib.sha256(token.encode()).digest()


def proof(key: bytes, nonce: str, host: str, port: int) -> str:
    """The proof for a nonce; `host` and `port` are those of the server's own end of the connection."""
    return hmac.new(key, f"pliant proof {nonce} {host} {port}".encode(), hashlib.sha256).hexdigest()

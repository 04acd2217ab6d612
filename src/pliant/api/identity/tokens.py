"""Signs and reads tokens that are valid for a short time."""

import base64
import hashlib
import hmac
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import OctKey

from pliant.api.errors import Unauthorized

LIFE = 3600
"""Seconds for which an access token is valid."""

REFRESH_LIFE = 30 * 24 * 3600

ACCESS, REFRESH = "pliant-api", "pliant-refresh"
"""What a token is for: its audience."""

Keys = Callable[[], Sequence[bytes]]
"""The valid keys, newest first: the newest signs, all of them verify."""


@dataclass(frozen=True, slots=True)
class Issued:
    access: str
    refresh: str
    life: int  # seconds


class Signer:
    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._made: dict[bytes, tuple[str, OctKey]] = {}

    def sign(self, audience: str, life: int, claims: Mapping[str, Any]) -> str:
        now = int(time.time())
        name, key = self._key(self._keys()[0])
        said = {**claims, "iss": "pliant", "aud": audience, "iat": now, "exp": now + life}
        return jwt.encode({"alg": "HS256", "typ": "JWT", "kid": name}, said, key)

    def completed(self, begun: str) -> str:
        """The access token that is `begun` and its signature. Raises Unauthorized."""
        refused = Unauthorized("The token is not valid.", "Get one with: pliant login (POST /api/v1/token)")
        for secret in self._keys():
            key = self._key(secret)[1]
            signature = hmac.new(key.raw_value, begun.encode(), hashlib.sha256).digest()
            token = f"{begun}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"
            try:
                self.read(token, ACCESS)
            except Unauthorized as error:
                refused = error
            else:
                return token
        raise refused

    def read(self, token: str, audience: str) -> dict[str, Any]:
        """Its claims. Raises Unauthorized."""
        wrong = Unauthorized("The token is not valid.", "Get one with: pliant login (POST /api/v1/token)")
        rules = jwt.JWTClaimsRegistry(
            iss={"essential": True, "value": "pliant"},
            aud={"essential": True, "value": audience},
            sub={"essential": True},
            exp={"essential": True},
        )
        expired = False
        for secret in self._keys():
            try:
                claims = jwt.decode(token, self._key(secret)[1], algorithms=["HS256"]).claims
                rules.validate(claims)
            except (JoseError, ValueError) as error:
                expired |= getattr(error, "error", "") == "expired_token"
                continue
            return claims
        if expired:
            raise Unauthorized("The token has expired.", "Get a new one: pliant login (POST /api/v1/token)")
        raise wrong

    def _key(self, secret: bytes) -> tuple[str, OctKey]:
        if secret not in self._made:
            digest = hashlib.sha256(b"pliant jwt\0" + secret).digest()
            name = hashlib.sha256(b"name\0" + digest).hexdigest()[:12]
            self._made[secret] = (name, OctKey.import_key(digest))
        return self._made[secret]

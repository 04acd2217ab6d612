"""Seals values of credentials, and answers that may be repeated, before they are stored."""

import hashlib
import json
from collections.abc import Mapping

from joserfc import jwe
from joserfc.errors import JoseError
from joserfc.jwk import OctKey

from pliant.control.errors import Conflict


class Vault:
    """Seals with a key derived from the secret of the state folder, which is in no backup and no bundle."""

    def __init__(self, secret: bytes) -> None:
        digest = hashlib.sha256(b"pliant credentials\0" + secret).digest()
        self._key = OctKey.import_key(digest)

    def sealed(self, values: Mapping[str, str]) -> str:
        text = json.dumps(values, sort_keys=True)
        return jwe.encrypt_compact({"alg": "dir", "enc": "A256GCM"}, text.encode(), self._key)

    def opened(self, text: str, what: str, cure: str) -> dict[str, str]:
        """The sealed values. Raises Conflict (text: `what`, `cure`) if another secret sealed them."""
        try:
            found = jwe.decrypt_compact(text, self._key).plaintext
        except (JoseError, ValueError) as error:
            raise Conflict(f"{what} sealed by a server with another secret.", cure) from error
        values: dict[str, str] = json.loads(found or b"{}")
        return values

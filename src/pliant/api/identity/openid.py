"""OpenID Connect: asks a login provider, and checks its answers."""

import base64
import hashlib
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import Key, KeySet
from joserfc.jws import extract_compact

from pliant.api.errors import Unauthorized
from pliant.api.identity.fetch import Failed, Fetch
from pliant.control.errors import Unavailable
from pliant.control.fractions import Finding
from pliant.model.identity import Provider
from pliant.model.notice import ADDRESS

ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"]
"""Accepted signatures: only those with a private key. A shared secret proves nothing."""

CURVES = (None, "P-256", "P-384", "P-521")
"""Curves of accepted keys; None: an RSA key. Other keys in a set are ignored."""

FRESH = 3600.0
"""Seconds for which the discovery document and the keys of the provider are used again."""

AGAIN = 5.0
"""Seconds after which the provider is asked again for an unknown key, or after it did not answer."""

LONGEST = 5.0
"""Seconds that an answer may take."""

MOST = 2**20
"""Largest answer, in bytes."""

AT_ONCE = 8
"""Most requests that may wait for the provider: a slow one holds that many threads of the server."""

LEEWAY = 60
"""Seconds by which the two clocks may differ."""

OFFLINE = "offline_access"
"""The scope with which many providers give a refresh token that outlives the login there."""

OURS = ("invalid_client", "unauthorized_client", "unsupported_grant_type", "invalid_scope")
"""OAuth 2 error codes that concern this server, not a person."""

GROUPS = 100
"""Most groups of one person that are shown; all count for roles."""

NAME = 100
"""Characters of a name that are kept."""


@dataclass(frozen=True, slots=True)
class Person:
    """A person as the provider describes them."""

    subject: str  # never given to another person
    name: str  # for people; neither unique nor stable
    groups: tuple[str, ...]
    email: str = ""
    uid: int | None = None  # of an account of this machine
    again: str = field(default="", repr=False)  # a refresh token of the provider's; empty: it gave none

    @property
    def told_groups(self) -> tuple[str, ...]:
        """For people: printable characters only, and at most GROUPS of them."""
        return tuple(sorted(filter(None, {plain(it) for it in self.groups[:GROUPS]})))


class NotKnown(Unauthorized):
    """The browser or the provider sent something that does not prove who logs in."""

    def __init__(self, why: str) -> None:
        super().__init__(f"The login is not valid: {why}.", "Log in again.")


class RefusedBy(NotKnown):
    """The provider refused, with an OAuth 2 error code."""

    def __init__(self, word: str) -> None:
        super().__init__(f"the provider refused it ({word})")
        self.word = word


class Relying:
    """This server as a client of a provider. Thread-safe. Raises Unavailable, NotKnown."""

    def __init__(self, provider: Provider, clock: Callable[[], float] = time.monotonic) -> None:
        self.provider = provider
        self._clock = clock
        self._guard = threading.Lock()
        self._room = threading.BoundedSemaphore(AT_ONCE)
        self._document: dict[str, Any] = {}
        self._keys: list[Key] = []
        self._read = self._keys_read = self._failed = float("-inf")
        self._fetch = Fetch(LONGEST, MOST)

    def begin(self, state: str, nonce: str, verifier: str) -> str:
        """The address where the person logs in."""
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        asked = {
            "response_type": "code",
            "client_id": self.provider.client,
            "redirect_uri": self.provider.back,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        with self._waiting():
            address = self._endpoint("authorization_endpoint")
            known = self._document.get("scopes_supported")
        lasting = (OFFLINE,) if isinstance(known, list) and OFFLINE in known else ()
        asked["scope"] = " ".join(dict.fromkeys((*self.provider.scopes, *lasting)))
        return f"{address}{'&' if '?' in address else '?'}{urlencode(asked)}"

    def person(self, code: str, verifier: str, nonce: str, issuer: str | None) -> Person:
        """The person who logged in, for the code and the issuer with which the browser came back."""
        with self._waiting():
            says_so = self._described().get("authorization_response_iss_parameter_supported") is True
            if issuer != self.provider.issuer and (issuer is not None or says_so):
                raise NotKnown("another provider sent the browser back")
            given = self._given(
                {
                    "grant_type": "authorization_code",
                    "code": code,
                    "redirect_uri": self.provider.back,
                    "code_verifier": verifier,
                }
            )
            return self._told(self.checked(str(given.get("id_token", "")), nonce), given)

    def again(self, token: str, keep: Callable[[str], None]) -> Person:
        """The person as the provider describes them now, by their refresh token. Raises NotKnown.

        `keep` gets the token that replaces this one before anything else may fail.
        """
        with self._waiting():
            try:
                given = self._given({"grant_type": "refresh_token", "refresh_token": token})
            except RefusedBy as error:
                if error.word not in OURS:
                    raise
                raise self._down(f"it refused this server ({error.word})") from error
            newer = str(given.get("refresh_token") or token)
            if newer != token:
                keep(newer)
            if given.get("id_token"):
                claims: Mapping[str, Any] = self.checked(str(given["id_token"]))
            else:
                claims = self._more({}, str(given.get("access_token", "")))
            if not isinstance(claims.get("sub"), str):
                raise self._down("it says nothing of a person who does not log in again")
            return self._told(claims, {**given, "refresh_token": newer})

    def _told(self, claims: Mapping[str, Any], given: Mapping[str, Any]) -> Person:
        told, it = dict(claims), self.provider
        if not {it.groups, it.email, it.uid or it.groups, "preferred_username"} <= claims.keys():
            told = {**self._more(claims, str(given.get("access_token", ""))), **claims}
        subject = claims["sub"]
        groups = told.get(self.provider.groups, ())
        name = next((it for it in (told.get("preferred_username"), told.get("name")) if it), subject)
        return Person(
            subject,
            plain(str(name)) or subject[:NAME],
            tuple(it for it in ([groups] if isinstance(groups, str) else groups) if isinstance(it, str))
            if isinstance(groups, str | list)
            else (),
            _address(told, self.provider.email),
            self._number(told),
            str(given.get("refresh_token") or ""),
        )

    def _number(self, told: Mapping[str, Any]) -> int | None:
        """The uid in the claims; None if there is none. Raises NotKnown for a value that is no number."""
        name = self.provider.uid
        if not name or told.get(name) in (None, ""):
            return None
        number = str(told[name])
        if not (number.isascii() and number.isdecimal() and len(number) <= 10):
            raise NotKnown(f"the claim {name} is not an account number")
        return int(number)

    def checked(self, token: str, nonce: str | None = None) -> dict[str, Any]:
        """The claims of an ID token for this server and, with a nonce, for this login. Raises NotKnown."""
        rules = jwt.JWTClaimsRegistry(
            leeway=LEEWAY,
            iss={"essential": True, "value": self.provider.issuer},
            aud={"essential": True, "value": self.provider.client},
            sub={"essential": True},
            exp={"essential": True},
            iat={"essential": True},
            nonce={"essential": False} if nonce is None else {"essential": True, "value": nonce},
        )
        try:
            claims = self._signed(token)
            rules.validate(claims)
        except (JoseError, ValueError, TypeError) as error:
            raise NotKnown(f"the provider's ID token was refused ({_word(error)})") from error
        subject, audience = claims["sub"], claims["aud"]
        if not (isinstance(subject, str) and 0 < len(subject) <= 255):
            raise NotKnown("the provider's ID token has no valid subject")
        party, several = claims.get("azp"), isinstance(audience, list) and len(audience) > 1
        if party != self.provider.client and (party is not None or several):
            raise NotKnown("the provider's ID token was made for another program")
        return claims

    def finding(self) -> Finding:
        """Whether a login can work now: checks the provider, its keys and the secret; for `pliant doctor`."""
        what = f"login by {self.provider.name}"
        try:
            with self._waiting():
                for name in ("authorization_endpoint", "token_endpoint"):
                    self._endpoint(name)
                if not self._keys_now(True):
                    raise self._down("it has no key whose signatures are taken")
                self._secret()
        except Unavailable as error:
            return Finding(what, False, f"{error} {error.hint}")
        return Finding(what, True, f"{self.provider.issuer} and its {len(self._keys)} keys can be read")

    @property
    def out(self) -> str:
        """The address that also logs out of the provider; '' if it names none or was not asked yet."""
        address = self._document.get("end_session_endpoint")
        if not isinstance(address, str) or not self._safe(address):
            return ""
        back = f"{self.provider.address}/console/login"
        words = urlencode({"client_id": self.provider.client, "post_logout_redirect_uri": back})
        return f"{address}{'&' if '?' in address else '?'}{words}"

    # -- what is signed -------------------------------------------------------------------------------

    def _signed(self, token: str) -> dict[str, Any]:
        """Raises JoseError, ValueError."""
        name = extract_compact(token.encode()).headers().get("kid")
        error: Exception = ValueError("unknown key")
        for read_again in (False, True):
            fitting = [key for key in self._keys_now(read_again) if name is None or key.kid == name]
            for key in fitting:
                try:
                    claims: dict[str, Any] = jwt.decode(token, key, algorithms=ALGORITHMS).claims
                except (JoseError, ValueError) as wrong:
                    error = wrong
                else:
                    return claims
            if fitting and name is not None:
                break  # the token names this key: newer keys change nothing
        raise error

    def _keys_now(self, read_again: bool) -> list[Key]:
        age = self._clock() - self._keys_read
        if age > FRESH or (read_again and age > AGAIN):
            told = self._asked(self._endpoint("jwks_uri"))
            try:
                found = KeySet.import_key_set(
                    {
                        "keys": [
                            it
                            for it in told["keys"]
                            if it.get("kty") in ("RSA", "EC")
                            and it.get("crv") in CURVES
                            and it.get("use", "sig") == "sig"
                        ]
                    }
                )
            except (JoseError, ValueError, KeyError, TypeError, AttributeError) as error:
                raise self._down("its keys cannot be read") from error
            self._keys, self._keys_read = [*found.keys], self._clock()
        return self._keys

    # -- what is asked --------------------------------------------------------------------------------

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        if not self._room.acquire(blocking=False):
            raise self._down(f"{AT_ONCE} others are waiting for it")
        try:
            yield
        finally:
            self._room.release()

    def _given(self, asked: Mapping[str, str]) -> Mapping[str, Any]:
        """The tokens that the provider gives. Raises RefusedBy."""
        form = dict(asked)
        headers = {}
        address, secret = self._endpoint("token_endpoint"), self._secret()
        ways = self._document.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        if "client_secret_basic" in ways:
            pair = f"{quote(self.provider.client, safe='')}:{quote(secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            form |= {"client_id": self.provider.client, "client_secret": secret}
        return self._asked(address, form=form, headers=headers)

    def _more(self, claims: Mapping[str, Any], access: str) -> Mapping[str, Any]:
        """Claims from the provider's userinfo endpoint; {} if there is none or it names another person."""
        if not access or not self._document.get("userinfo_endpoint"):
            return {}
        address = self._endpoint("userinfo_endpoint")
        told = self._asked(address, headers={"Authorization": f"Bearer {access}"})
        return told if told.get("sub") == claims.get("sub", told.get("sub")) else {}

    def _secret(self) -> str:
        path = self.provider.secret
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(handle, encoding="utf-8") as file:
                seen = os.fstat(handle)
                text = file.read(4097).strip() if stat.S_ISREG(seen.st_mode) else ""
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it is no text"
            raise Unavailable(
                f"The client secret cannot be read from {path}: {why}.", "An administrator can mend it."
            ) from error
        if not text or len(text) > 4096 or seen.st_mode & 0o037:
            raise Unavailable(
                f"The client secret in {path} is not used: the file is empty, too long, or open to others.",
                f"An administrator closes it with: chmod 0640 {path}",
            )
        return text

    def _endpoint(self, name: str) -> str:
        address = self._described().get(name)
        if not isinstance(address, str) or not self._safe(address):
            raise self._down(f"it names no {name} that can be used")
        return address

    def _safe(self, address: str) -> bool:
        """True for TLS, or for the scheme of the issuer: in a test on one machine that is plain HTTP."""
        return urlsplit(address).scheme in ("https", urlsplit(self.provider.issuer).scheme)

    def _described(self) -> dict[str, Any]:
        """The discovery document. After a failure the provider is not asked again for AGAIN seconds."""
        with self._guard:
            now = self._clock()
            if now - self._read > FRESH:
                if now - self._failed <= AGAIN:
                    raise self._down("it did not answer before")
                address = f"{self.provider.issuer.rstrip('/')}/.well-known/openid-configuration"
                try:
                    told = dict(self._asked(address))
                    if told.get("issuer") != self.provider.issuer:
                        raise self._down(f"it calls itself {str(told.get('issuer'))[:80]!r}")
                except Unavailable:
                    self._failed = self._clock()
                    raise
                self._document, self._read = told, self._clock()
            return self._document

    def _asked(
        self, address: str, *, form: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> Mapping[str, Any]:
        try:
            return self._fetch(address, form, headers or {})
        except Failed as error:
            if form is not None and error.status in (400, 401):
                raise RefusedBy(plain(error.word)[:60] or str(error.status)) from error
            raise self._down(str(error)) from error

    def _down(self, why: str) -> Unavailable:
        return Unavailable(
            f"The login provider {self.provider.name} ({self.provider.issuer}) cannot be used: {why}.",
            "Users with a password of this server can still log in.",
        )


def _word(error: Exception) -> str:
    """The error code, without anything that was sent."""
    return str(getattr(error, "error", "") or "malformed")[:60]


def _address(told: Mapping[str, Any], claim: str) -> str:
    """The e-mail address; '' if there is none or the provider says that it is not verified."""
    found = told.get(claim)
    if claim == "email" and told.get("email_verified") is False:
        return ""
    return found if isinstance(found, str) and ADDRESS.fullmatch(found) else ""


def plain(text: str) -> str:
    """The text as a name: at most NAME printable characters, no colon."""
    return "".join(it for it in text if it.isprintable() and it != ":").strip()[:NAME]

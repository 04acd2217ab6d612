"""Which answers of a provider are trusted: a real one's tokens, and forgeries that others could make."""

import base64
import hmac
import json
import secrets
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest
from joserfc import jwt

import pliant.api.identity.openid
from pliant.api.identity.openid import AGAIN, AT_ONCE, LEEWAY, NotKnown, Relying
from pliant.control.errors import Unavailable
from tests.openid.rig import canaille, new_key

NONCE = "the nonce of this login"
VERIFIER = "a verifier of at least forty-three characters, as PKCE wants".replace(" ", "-").replace(",", "")


def new_state():
    return secrets.token_urlsafe(16)


@pytest.fixture
def relying(provider):
    return Relying(provider.told)


def claims(provider, **other):
    now = int(time.time())
    said = {
        "iss": provider.issuer,
        "aud": "pliant",
        "sub": "id-of-anna",
        "iat": now,
        "exp": now + 300,
        "nonce": NONCE,
    } | other
    return {name: value for name, value in said.items() if value is not None}


def signed(provider, key=None, algorithm="RS256", kid="first", **other):
    header = {"alg": algorithm} | ({"kid": kid} if kid else {})
    return jwt.encode(header, claims(provider, **other), key or provider.key, algorithms=[algorithm])


def refused(relying, token):
    with pytest.raises(NotKnown) as caught:
        relying.checked(token, NONCE)
    assert not token or token not in f"{caught.value!s} {caught.value.hint}"
    return str(caught.value)


def test_a_real_login_says_who_it_is(provider, relying):
    code = provider.code(relying.begin(new_state(), nonce := new_state(), VERIFIER), "anna")
    person = relying.person(code, VERIFIER, nonce, provider.issuer)
    assert (person.subject, person.name, person.groups) == ("id-of-anna", "anna", ("team",))


def test_a_code_is_good_once_and_for_its_verifier_and_its_nonce(provider, relying):
    code = provider.code(relying.begin(new_state(), nonce := new_state(), VERIFIER), "anna")
    with pytest.raises(NotKnown, match="invalid_grant"):
        relying.person(code, VERIFIER[::-1], nonce, provider.issuer)
    code = provider.code(relying.begin(new_state(), nonce := new_state(), VERIFIER), "anna")
    with pytest.raises(NotKnown, match="ID token"):
        relying.person(code, VERIFIER, "the nonce of another login", provider.issuer)
    with pytest.raises(NotKnown, match="invalid_grant"):
        relying.person(code, VERIFIER, nonce, provider.issuer)


def test_what_the_provider_would_sign_is_taken(provider, relying):
    """Otherwise the refusals below would prove nothing."""
    for token in (
        signed(provider),
        signed(provider, kid=""),
        signed(provider, algorithm="PS256"),
        signed(provider, aud=["pliant"]),
        signed(provider, aud=["pliant", "another"], azp="pliant"),
        signed(provider, exp=int(time.time()) - LEEWAY // 2),
    ):
        assert relying.checked(token, NONCE)["sub"] == "id-of-anna"


@pytest.mark.parametrize(
    "other",
    [
        {"iss": "https://other.example.org"},
        {"iss": None},
        {"aud": "another"},
        {"aud": ["another"]},
        {"aud": ["pliant", "another"]},
        {"aud": ["pliant", "another"], "azp": "another"},
        {"azp": "another"},
        {"aud": None},
        {"nonce": "another"},
        {"nonce": None},
        {"exp": 1_000_000_000},
        {"exp": int(time.time()) - 300},
        {"exp": None},
        {"iat": None},
        {"iat": int(time.time()) + 3600, "exp": int(time.time()) + 7200},
        {"nbf": int(time.time()) + 3600},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"sub": "x" * 256},
    ],
    ids=",".join,
)
def test_a_token_for_another_or_of_another_time(provider, relying, other):
    refused(relying, signed(provider, **other))


def part(value):
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def by_hand(provider, header, secret=None):
    """A token signed with a secret, as libraries refuse to use a public key so; unsigned without a secret."""
    begun = f"{part(json.dumps(header).encode())}.{part(json.dumps(claims(provider)).encode())}"
    digest = "sha512" if header["alg"] == "HS512" else "sha256"
    return f"{begun}.{part(hmac.digest(secret, begun.encode(), digest)) if secret is not None else ''}"


def test_nothing_without_the_providers_signature(provider, relying):
    good = signed(provider)
    head, body, signature = good.split(".")
    changed = json.dumps(claims(provider, sub="id-of-carol")).encode()
    forged = part(changed)
    middle = len(signature) // 2
    flipped = signature[:middle] + ("A" if signature[middle] != "A" else "B") + signature[middle + 1 :]
    other = new_key("first")
    for token in (
        by_hand(provider, {"alg": "none"}),
        by_hand(provider, {"alg": "none", "kid": "first"}),
        by_hand(provider, {"alg": "None"}),
        f"{head}.{forged}.{signature}",
        f"{head}.{body}.{flipped}",
        f"{head}.{body}.",
        f"{head}.{body}",
        "",
        "a.b.c",
        signed(provider, key=other),
        signed(provider, key=new_key("unknown"), kid="unknown"),
    ):
        refused(relying, token)
    # A token may contain its key, which proves nothing.
    header = {"alg": "RS256", "kid": "first", "jwk": other.as_dict(private=False)}
    refused(relying, jwt.encode(header, claims(provider), other))


def test_the_public_key_is_no_secret(provider, relying):
    """An HMAC with the public key, which everybody has, in each form that a library could accept."""
    public = provider.key
    for secret in (
        public.as_pem(private=False),
        public.as_der(private=False),
        json.dumps(public.as_dict(private=False)).encode(),
        public.as_dict(private=False)["n"].encode(),
        b"a secret: of the client / 100%",
    ):
        for algorithm in ("HS256", "HS512"):
            for header in ({"alg": algorithm, "kid": "first"}, {"alg": algorithm}):
                refused(relying, by_hand(provider, header, secret))


def test_keys_are_rotated_without_a_restart(tmp_path):
    now = [0.0]
    old, new = new_key("old"), new_key("new")
    with canaille(tmp_path, keys=[old]) as provider:
        relying = Relying(provider.told, lambda: now[0])
        assert relying.checked(signed(provider, key=old, kid="old"), NONCE)
        provider.stop()
        provider.start(new, old)
        later = signed(provider, key=new, kid="new")
        refused(relying, later)  # a stranger's tokens do not cause endless requests
        now[0] += AGAIN + 1
        assert relying.checked(later, NONCE)
        assert relying.checked(signed(provider, key=old, kid="old"), NONCE)
        provider.stop()
        provider.start(new)
        now[0] += 3601
        refused(relying, signed(provider, key=old, kid="old"))
        assert relying.checked(later, NONCE)


def test_a_provider_that_is_away_is_not_waited_for_again_at_once(tmp_path):
    now = [0.0]
    with canaille(tmp_path) as provider:
        provider.stop()
        relying = Relying(provider.told, lambda: now[0])
        with pytest.raises(Unavailable) as caught:
            relying.begin("state", NONCE, VERIFIER)
        assert str(caught.value).startswith(
            f"The login provider Lab login ({provider.issuer}) cannot be used"
        )
        assert "password" in caught.value.hint
        provider.start()
        with pytest.raises(Unavailable, match="did not answer before"):
            relying.begin("state", NONCE, VERIFIER)
        now[0] += AGAIN + 1
        assert relying.begin("state", NONCE, VERIFIER).startswith(provider.issuer)


def test_a_provider_that_calls_itself_otherwise(provider):
    relying = Relying(replace(provider.told, issuer=f"{provider.issuer}/"))
    with pytest.raises(Unavailable, match="calls itself"):
        relying.begin("state", NONCE, VERIFIER)


def test_a_code_from_another_provider(provider, relying):
    """It would be sent to the wrong provider; this one declares that it always names itself."""
    for issuer in ("https://other.example.org", "", None):
        code = provider.code(relying.begin(new_state(), nonce := new_state(), VERIFIER), "anna")
        with pytest.raises(NotKnown, match="another provider"):
            relying.person(code, VERIFIER, nonce, issuer)
        assert relying.person(code, VERIFIER, nonce, provider.issuer).name == "anna"  # nothing was sent


@contextmanager
def port_that(answers):
    """A listener that calls `answers` with each connection, in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept():
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                threading.Thread(target=answers, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


def trickle(connection):
    """Sends a byte now and then, for ever."""
    with connection:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n")
        try:
            while True:
                connection.sendall(b" ")
                time.sleep(0.02)  # as a slow line does
        except OSError:
            return


def say_nothing(connection):
    with connection:
        while connection.recv(4096):
            pass


@pytest.mark.parametrize("answers", [say_nothing, trickle])
def test_a_provider_that_is_slow(provider, monkeypatch, answers):
    monkeypatch.setattr(pliant.api.identity.openid, "LONGEST", 0.3)
    with port_that(answers) as address:
        begun = time.monotonic()
        with pytest.raises(Unavailable, match="timed out"):
            Relying(replace(provider.told, issuer=address)).begin("state", NONCE, VERIFIER)
        assert time.monotonic() - begun < 60  # the whole answer would take 200 s, or not come at all


def test_a_slow_provider_holds_few_threads(provider, monkeypatch):
    """Further logins fail at once: they would use up the threads of the whole server."""
    monkeypatch.setattr(pliant.api.identity.openid, "LONGEST", 200.0)
    inside = threading.Semaphore(0)
    done = threading.Event()

    def hold(connection):
        inside.release()
        done.wait(200)
        connection.close()

    with port_that(hold) as address:
        # Its description is known; it hangs on requests for tokens.
        relying = Relying(replace(provider.told, issuer=address))
        relying._document = {"issuer": address, "token_endpoint": f"{address}/token"}
        relying._read = time.monotonic()

        def log_in():
            with pytest.raises(Unavailable):
                relying.person("code", VERIFIER, NONCE, None)

        held = [threading.Thread(target=log_in) for _ in range(AT_ONCE)]
        for thread in held:
            thread.start()
        assert all(inside.acquire(timeout=240) for _ in held)
        begun = time.monotonic()
        with pytest.raises(Unavailable, match="8 others are waiting for it"):
            relying.begin("state", NONCE, VERIFIER)
        assert time.monotonic() - begun < 90
        done.set()
        for thread in held:
            thread.join(60)
            assert not thread.is_alive()


def test_what_doctor_says(provider, tmp_path):
    found = Relying(provider.told).finding()
    assert found.holds and found.what == "login by Lab login"
    lost = Relying(replace(provider.told, secret=str(tmp_path / "not-there"))).finding()
    assert not lost.holds and "The client secret cannot be read from" in lost.text
    other = Relying(replace(provider.told, issuer=f"{provider.issuer}/")).finding()
    assert not other.holds and "calls itself" in other.text


def test_the_secret_is_read_anew_and_only_from_a_closed_file(provider, tmp_path):
    secret = tmp_path / "secret"
    relying = Relying(replace(provider.told, secret=str(secret)))

    def log_in():
        code = provider.code(relying.begin(new_state(), nonce := new_state(), VERIFIER), "anna")
        return relying.person(code, VERIFIER, nonce, provider.issuer)

    with pytest.raises(Unavailable, match="cannot be read"):
        log_in()
    secret.write_text((provider.folder / "client-secret").read_text())
    secret.chmod(0o644)
    with pytest.raises(Unavailable, match="open to others"):
        log_in()
    secret.chmod(0o600)
    assert log_in().name == "anna"
    secret.write_text("wrong")
    with pytest.raises(NotKnown, match="invalid_client"):
        log_in()
    secret.unlink()
    secret.symlink_to(provider.folder / "client-secret")
    with pytest.raises(Unavailable, match="cannot be read"):
        log_in()

"""Answers of a broken or lying provider: each is a real provider's with one change."""

import json
import secrets
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from joserfc import jwt

from pliant.api.identity.openid import MOST, NotKnown, Relying
from pliant.control.errors import Unavailable
from pliant.model.identity import Provider
from tests.openid.rig import new_key

NONCE = "the nonce of this login"


class Liar:
    """`answers`: path -> (status, an object, bytes or the address of a redirection)."""

    def __init__(self, address, secret):
        self.told = Provider(
            "Lab", address, "pliant", str(secret), "http://127.0.0.1:1", ("openid", "groups")
        )
        self.key, self.asked = new_key("first"), []
        self.claims = {"iss": address, "aud": "pliant", "sub": "id-of-anna", "nonce": NONCE}
        names = {"authorization": "authorize", "token": "token", "userinfo": "userinfo"}
        document = {f"{name}_endpoint": f"{address}/{path}" for name, path in names.items()}
        self.answers = {
            "/.well-known/openid-configuration": (
                200,
                {"issuer": address, "jwks_uri": f"{address}/keys", **document},
            ),
            "/keys": (200, {"keys": [self.key.as_dict(private=False)]}),
            "/userinfo": (200, {"sub": "id-of-anna"}),
        }

    def says(self, key=None, **more):
        """Makes it give an ID token with these claims."""
        now = int(time.time())
        claims = {**self.claims, "iat": now, "exp": now + 300, **more}
        token = jwt.encode({"alg": "RS256", "kid": "first"}, claims, key or self.key)
        self.answers["/token"] = (200, {"id_token": token, "access_token": "opaque"})

    def person(self):
        return Relying(self.told).person("code", secrets.token_urlsafe(48), NONCE, None)


@contextmanager
def served(secret):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):  # the name that http.server asks for
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            liar.asked.append(self.path)
            status, said = liar.answers.get(self.path, (404, {}))
            body = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(status)
            if isinstance(said, str):
                self.send_header("Location", said)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *words):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    liar = Liar(f"http://127.0.0.1:{server.server_port}", secret)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield liar
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def liar(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("of the client")
    secret.chmod(0o600)
    with served(secret) as made:
        made.says()
        yield made


def test_what_it_says_of_somebody_else_counts_for_nothing(liar):
    about = {"preferred_username": "anna", "groups": ["team"]}
    liar.answers["/userinfo"] = (200, {"sub": "id-of-anna", **about})
    assert (liar.person().name, liar.person().groups) == ("anna", ("team",))
    for subject in ({"sub": "id-of-carol"}, {}, {"sub": None}):
        liar.answers["/userinfo"] = (200, {**subject, **about})
        assert (liar.person().name, liar.person().groups) == ("id-of-anna", ())


def test_what_is_signed_counts_before_what_is_not(liar):
    liar.says(groups=["team"], name="Anna")
    about = {"sub": "id-of-anna", "preferred_username": "anna", "groups": ["chiefs"], "iss": "other"}
    liar.answers["/userinfo"] = (200, about)
    assert (liar.person().name, liar.person().groups) == ("anna", ("team",))


@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/keys", "/token", "/userinfo"])
@pytest.mark.parametrize("status", [302, 307, 308])
def test_no_answer_leads_to_another_address(liar, path, status):
    """The code, the client's secret and the access token are sent to no other address."""
    liar.answers["/elsewhere"] = liar.answers.get(path, (200, {"sub": "id-of-anna", "groups": ["chiefs"]}))
    liar.answers[path] = (status, f"{liar.told.issuer}/elsewhere")
    with pytest.raises(Unavailable):
        liar.person()
    assert path in liar.asked and "/elsewhere" not in liar.asked


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/token", {}),
        ("/token", {"id_token": None}),
        ("/token", {"id_token": ["a"]}),
        ("/token", {"access_token": "opaque"}),
    ],
)
def test_no_id_token_is_no_login(liar, path, said):
    liar.answers[path] = (200, said)
    with pytest.raises(NotKnown, match="ID token was refused"):
        liar.person()


@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/keys", "/token"])
@pytest.mark.parametrize(
    "said",
    [
        b"[]",
        b"{",
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"keys": 7, "id_token": "a", "issuer": ' + b" " * MOST + b'"x"}',
        b'"text"',
    ],
    ids=["list", "cut", "empty", "no text", "deep", "long", "text"],
)
def test_an_answer_that_is_none(liar, path, said):
    liar.answers[path] = (200, said)
    with pytest.raises(Unavailable, match="is not a JSON object"):
        liar.person()


def test_an_answer_is_read_up_to_a_size(liar):
    """Even if the whole answer were valid."""
    _, document = liar.answers["/token"]
    liar.answers["/token"] = (200, json.dumps(document).encode() + b" " * MOST)
    with pytest.raises(Unavailable, match="is not a JSON object"):
        liar.person()


def test_a_key_that_is_not_for_signatures_signs_nothing(liar):
    other, another = new_key("first"), new_key("second").as_dict(private=False)
    liar.answers["/keys"] = (200, {"keys": [another, {**other.as_dict(private=False), "use": "enc"}]})
    liar.says(other)
    with pytest.raises(NotKnown, match="ID token was refused"):
        liar.person()
    liar.answers["/keys"] = (200, {"keys": [{**other.as_dict(private=False), "use": "sig"}]})
    assert liar.person().subject == "id-of-anna"


def test_a_name_holds_nothing_that_a_terminal_obeys(liar):
    liar.says(groups=[], preferred_username="an\x1b]0;x\x07na\u202e:root\n" + "x" * 200)
    name = liar.person().name
    assert name.isprintable() and ":" not in name and len(name) == 100 and name.startswith("an]0;xnaroot")
    for nothing in ("\x1b\u202e", " ", ":"):
        liar.says(groups=[], preferred_username=nothing)
        assert liar.person().name == "id-of-anna"


def test_groups_are_told_without_what_a_terminal_obeys_and_not_all_of_very_many(liar):
    odd = "te\x1b]0;x\x07am\u202e\x00"
    liar.says(groups=[odd, "", *map(str, range(200))], preferred_username="anna")
    told = liar.person().told_groups
    assert "te]0;xam" in told and "" not in told and len(told) <= 100


@pytest.mark.parametrize("groups", [7, {"chiefs": True}, [["chiefs"]], [None], None, True])
def test_groups_that_are_none(liar, groups):
    liar.says(groups=groups, preferred_username="anna")
    assert liar.person().groups == ()


@pytest.mark.parametrize(
    "address", ["http://login.example.org/token", "ftp://x/", "file:///etc/shadow", 7, ""]
)
def test_secrets_go_to_addresses_with_tls_alone(liar, address):
    issuer = "https://login.example.org"
    relying = Relying(replace(liar.told, issuer=issuer))
    relying._document = {"issuer": issuer, "token_endpoint": address, "authorization_endpoint": address}
    relying._read = time.monotonic()
    with pytest.raises(Unavailable, match="names no token_endpoint that can be used"):
        relying.person("code", "verifier", NONCE, None)
    with pytest.raises(Unavailable, match="names no authorization_endpoint that can be used"):
        relying.begin("state", NONCE, "verifier")


def test_a_number_of_an_account_is_one_or_there_is_no_login(liar):
    liar.told = replace(liar.told, uid="uid")
    for said, number in ((1001, 1001), ("1001", 1001), ("", None), (None, None)):
        liar.says(uid=said, groups=[], preferred_username="anna", email="a@b.c")
        assert liar.person().uid == number
    for said in ("anna", -1, "-1", 1.5, True, [1001], "\u0661", "1" * 11, " 1"):
        liar.says(uid=said)
        with pytest.raises(NotKnown, match="claim uid is not an account number"):
            liar.person()
    liar.told = replace(liar.told, uid="")
    assert liar.person().uid is None


def test_an_address_that_the_provider_has_not_seen_to_be_theirs(liar):
    for more, address in (
        ({"email": "anna@example.org"}, "anna@example.org"),
        ({"email": "anna@example.org", "email_verified": True}, "anna@example.org"),
        ({"email": "anna@example.org", "email_verified": False}, ""),
        ({"email": "anna@example.org\r\nBcc: all@example.org"}, ""),
        ({"email": ["anna@example.org"]}, ""),
        ({}, ""),
    ):
        liar.says(**more)
        assert liar.person().email == address
    liar.told = replace(liar.told, email="work")
    liar.says(email="anna@example.org", work="anna@work.example.org")
    assert liar.person().email == "anna@work.example.org"

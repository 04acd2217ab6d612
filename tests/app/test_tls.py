"""TLS of the server: which certificate it shows, which ones clients trust, what it refuses to use."""

import contextlib
import datetime as dt
import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from pliant.api.connections.certificates import CertificateError, Certificates, covered
from pliant.api.connections.forward import Forward
from pliant.api.connections.front import Front
from pliant.api.connections.peer import PEER, listen
from pliant.client.errors import PliantError, Unreachable
from pliant.client.transport import Transport

Serve = Callable[..., tuple[int, Path]]


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that returns what it was sent."""
    request = Request(scope, receive)
    said = {
        "scheme": request.url.scheme,
        "peer": request.state._state.get(PEER),
        "token": request.headers.get("authorization"),
        "body": (await request.body()).decode(),
    }
    await JSONResponse(said)(scope, receive, send)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts a server; its port and its Unix socket."""
    running: list[tuple[Front, threading.Thread, list[socket.socket]]] = []

    def start(certificates: Certificates, served: object = app) -> tuple[int, Path]:
        path = tmp_path / f"sock{len(running)}"
        sockets = [socket.create_server(("127.0.0.1", 0)), listen(path)]
        for it in sockets:
            it.listen()
        front = Front(served, certificates.context(), patience=1)  # type: ignore[arg-type]
        thread = threading.Thread(target=front.run, kwargs={"sockets": sockets}, daemon=True)
        thread.start()
        running.append((front, thread, sockets))
        return int(sockets[0].getsockname()[1]), path

    yield start
    for front, thread, sockets in running:
        deadline = time.monotonic() + 60
        while not front.started and time.monotonic() < deadline:
            time.sleep(0.01)
        front.should_exit = True
        thread.join(60)
        for it in sockets:
            it.close()


@pytest.fixture
def own(tmp_path: Path) -> Certificates:
    made = Certificates(tmp_path)
    made.choose(True)
    return made


def certificate(
    folder: Path, names: Sequence[str], *, days: int = 30, password: bytes | None = None
) -> tuple[Path, Path]:
    """A self-signed certificate, as an owner may bring one, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "brought")])
    end = dt.datetime.now(dt.UTC) + dt.timedelta(days=days)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(end - dt.timedelta(days=60)).not_valid_after(end)
    if names:
        told = x509.SubjectAlternativeName([x509.DNSName(it) for it in names])
        builder = builder.add_extension(told, critical=False)
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    made = builder.add_extension(own, critical=False).sign(key, hashes.SHA256())
    chain, secret = folder / "brought.pem", folder / "brought.key"
    chain.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    hidden = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    secret.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden)
    )
    return chain, secret


def shown(port: int, name: str | None) -> bytes:
    """The certificate that the server shows for that name; None: for a client that connects by address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), 60) as plain,
        context.wrap_socket(plain, server_hostname=name) as sealed,
    ):
        found = sealed.getpeercert(binary_form=True)
    assert found is not None
    return found


def der(path: Path) -> bytes:
    return x509.load_pem_x509_certificate(path.read_bytes()).public_bytes(serialization.Encoding.DER)


def test_curl_and_our_client_believe_the_local_authority(own: Certificates, serve: Serve) -> None:
    port, _ = serve(own)
    url = f"https://127.0.0.1:{port}"
    authority = str(own.trusted.with_name("ca.pem"))
    done = subprocess.run(
        ["curl", "-sS", "--noproxy", "*", "-H", "Authorization: Bearer word", f"{url}/"],
        env=os.environ | {"CURL_CA_BUNDLE": authority},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["scheme"] == "https"
    for host in ("127.0.0.1", "localhost"):
        asking = Transport(f"https://{host}:{port}", "word", authority=authority)
        with contextlib.closing(asking):
            told = asking.call("POST", "/", body={"a": 1})
            assert told == {"scheme": "https", "peer": None, "token": "Bearer word", "body": '{"a": 1}'}


def test_tls_where_http_was_imported_without_it(own: Certificates, serve: Serve) -> None:
    """As in commands that begin at the Unix socket and continue over the URL."""
    port, _ = serve(own)
    script = (
        "from pliant.cli.session import client_for\n"
        f"client_for('https://127.0.0.1:{port}', None, '/nowhere').close()\n"
        f"with client_for('https://127.0.0.1:{port}', None, None, {str(own.trusted)!r}) as client:\n"
        "    print(client.call('GET', '/')['scheme'])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("https\n", "")


def test_nothing_is_sent_to_a_server_that_is_not_believed(own: Certificates, serve: Serve) -> None:
    port, _ = serve(own)
    asking = Transport(f"https://127.0.0.1:{port}", "word")  # trusts the system's authorities
    with pytest.raises(Unreachable, match=r"not trusted.*No token was sent") as caught:
        asking.call("GET", "/")
    assert "--ca FILE" in caught.value.details


def test_another_authority_is_not_believed(own: Certificates, serve: Serve, tmp_path: Path) -> None:
    port, _ = serve(own)
    (tmp_path / "other").mkdir()
    other = Certificates(tmp_path / "other")
    other.choose(True)
    asking = Transport(f"https://127.0.0.1:{port}", "word", authority=str(other.trusted))
    with pytest.raises(Unreachable, match="not trusted"):
        asking.call("GET", "/")


def test_a_server_without_tls_is_asked_with_it(tmp_path: Path, serve: Serve) -> None:
    port, _ = serve(Certificates(tmp_path))
    with pytest.raises(Unreachable, match="does not speak TLS"):
        Transport(f"https://127.0.0.1:{port}", "word").call("GET", "/")


def test_a_server_with_tls_is_asked_without(own: Certificates, serve: Serve) -> None:
    port, _ = serve(own)
    with pytest.raises(Unreachable, match="No token was sent"):
        Transport(f"http://127.0.0.1:{port}", "word").call("GET", "/")


def test_the_unix_socket_stays_as_it_is(own: Certificates, serve: Serve) -> None:
    port, path = serve(own)
    asking = Transport(f"https://127.0.0.1:{port}", None, socket=str(path))
    with contextlib.closing(asking):
        assert asking.call("GET", "/") | {"token": None} == {
            "scheme": "http",
            "peer": os.geteuid(),
            "token": None,
            "body": "",
        }


def test_a_brought_certificate_answers_for_its_names(tmp_path: Path, serve: Serve) -> None:
    chain, key = certificate(tmp_path, ["gpu.example.com", "*.lab.example.com"])
    both = Certificates(tmp_path)
    both.choose(None, (chain, key))
    assert both.on
    assert both.names == {"gpu.example.com", "*.lab.example.com"}
    port, _ = serve(both)
    local = tmp_path / "tls" / "local.pem"
    for name in ("gpu.example.com", "GPU.example.com", "a.lab.example.com"):
        assert shown(port, name) == der(chain), name
    for name in (None, "localhost", "other.example.com", "a.b.lab.example.com"):
        assert shown(port, name) == der(local), name


def test_programs_of_this_machine_believe_both(tmp_path: Path, serve: Serve) -> None:
    both = Certificates(tmp_path)
    both.choose(True, certificate(tmp_path, ["localhost"]))
    port, _ = serve(both)
    for host in ("127.0.0.1", "localhost"):
        asking = Transport(f"https://{host}:{port}", "word", authority=str(both.trusted))
        with contextlib.closing(asking):
            assert asking.call("GET", "/")["scheme"] == "https"


def test_a_server_that_stands_by_hands_on_by_tls(own: Certificates, serve: Serve, tmp_path: Path) -> None:
    leader, _ = serve(own)
    front = Forward(app, lambda: f"https://127.0.0.1:{leader}", lambda: None, own.checking)
    port, _ = serve(own, front)
    asking = Transport(f"https://127.0.0.1:{port}", "word", authority=str(own.trusted))
    with contextlib.closing(asking):
        assert asking.call("POST", "/", body=1)["body"] == "1"
    (tmp_path / "other").mkdir()
    other = Certificates(tmp_path / "other")
    other.choose(True)
    stranger, _ = serve(other)
    front = Forward(app, lambda: f"https://127.0.0.1:{stranger}", lambda: None, own.checking)
    port, _ = serve(own, front)
    with socket.create_connection(("127.0.0.1", port), 60) as plain:
        context = own.checking()
        assert context is not None
        with contextlib.closing(http.client.HTTPSConnection("127.0.0.1", port, context=context)) as asked:
            asked.request("POST", "/", "1", {"Authorization": "Bearer word"})
            answer = asked.getresponse()
            assert (answer.status, json.loads(answer.read())["reason"]) == (503, "not-leading")
        plain.close()


def test_what_is_made_is_kept_until_it_nears_its_end(own: Certificates, tmp_path: Path) -> None:
    def files() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (tmp_path / "tls").iterdir()}

    before = files()
    own.choose(None)
    assert files() == before
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "tls").rglob("*"))
    chain, _ = certificate(tmp_path, ["localhost"], days=1)
    (tmp_path / "tls" / "local.pem").write_bytes(chain.read_bytes())
    own.choose(None)
    assert files()["ca.pem"] == before["ca.pem"]
    assert files()["local.pem"] not in (before["local.pem"], chain.read_bytes())
    own.choose(False)
    assert not own.on
    assert own.context() is None


def test_a_server_for_the_network_speaks_tls(tmp_path: Path) -> None:
    wide = Certificates(tmp_path, "0.0.0.0")
    with pytest.raises(CertificateError, match="open to the network: add --tls"):
        wide.choose(None)
    wide.choose(True)
    assert wide.url(1) == "https://127.0.0.1:1"


def test_certificates_that_cannot_be_used(tmp_path: Path) -> None:
    made = Certificates(tmp_path)

    def refused(words: str, *given: Path) -> None:
        with pytest.raises(CertificateError, match=words):
            made.choose(True, given)
        assert not made.on

    chain, key = certificate(tmp_path, ["a"])
    refused("cannot be read: No such file", tmp_path / "none", key)
    refused("cannot be read: No such file", chain, tmp_path / "none")
    refused("holds no certificate in PEM form", key, key)
    refused("is not the key of the certificate", chain, chain)
    (tmp_path / "b").mkdir()
    refused("is not the key of the certificate", chain, certificate(tmp_path / "b", ["a"])[1])
    refused("protected by a passphrase", *certificate(tmp_path, ["a"], password=b"word"))
    refused("names no host", *certificate(tmp_path, []))
    refused("ended on .*: renew it", *certificate(tmp_path, ["a"], days=-1))


def test_authorities_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("nothing\n")
    for name, words in (("none.pem", "Cannot read .*none.pem"), ("empty.pem", "holds no certificates")):
        asking = Transport("https://127.0.0.1:1", "word", authority=str(tmp_path / name))
        with pytest.raises(PliantError, match=words):
            asking.call("GET", "/")


def test_names_with_a_star_stand_for_one_word() -> None:
    assert covered("A.example.com.", ["*.example.com"])
    assert not covered("example.com", ["*.example.com"])
    assert not covered("a.b.example.com", ["*.example.com"])

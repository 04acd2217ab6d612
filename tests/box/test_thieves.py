"""Another user's program in the place of the server: the command line sends it no usable secret."""

import contextlib
import http.client
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pliant.client.locate import server_record
from tests.box.accounts import account, acting

LIST = [sys.executable, "-m", "pliant.cli", "list"]


@pytest.fixture(autouse=True)
def nothing_left() -> None:
    """Does nothing: these tests need no warden."""


@pytest.fixture(scope="module")
def bob() -> Iterator[pwd.struct_passwd]:
    with account("bob") as made:
        yield made


@pytest.fixture
def home(bob: pwd.struct_passwd) -> Iterator[Path]:
    """A folder of bob's that every account can reach."""
    made = Path(tempfile.mkdtemp(prefix="pliant-bob-", dir="/tmp"))
    made.chmod(0o755)
    os.chown(made, bob.pw_uid, bob.pw_gid)
    yield made
    shutil.rmtree(made)


class Server:
    """A real server, on a port that was free."""

    def __init__(self, state: Path) -> None:
        self.state = state
        command = [sys.executable, "-m", "pliant.app", "serve", "--state", str(state), "--simulate", "1x1"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while (record := server_record(str(state))) is None or record["pid"] != self.process.pid:
            if time.monotonic() > deadline or self.process.poll() is not None:
                self.kill()
                raise AssertionError("the server does not start")
            time.sleep(0.02)
        self.url = str(record["url"])
        self.token = (state / "token").read_text().strip()

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "state")
    yield made
    made.kill()


def listed(tmp_path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PLIANT_")}
    told = kept | {"PLIANT_CONFIG": str(tmp_path / "config.json"), "HOME": str(tmp_path)} | env
    return subprocess.run(LIST, env=told, capture_output=True, text=True, check=False, timeout=120)


def served(listener: socket.socket, out: int, real: int = 0) -> None:
    """Records all requests, and answers with what a real server on another port answers, or with {}."""
    os.write(out, b"ready\n")
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(60)
            while came := connection.recv(65536):
                os.write(out, came)
                body = b"{}"
                if real:
                    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", real)) as other:
                        other.request("GET", came.split()[1].decode())
                        body = other.getresponse().read()
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


def taken(port: int) -> socket.socket:
    """Listens on that port; on another one if a different program took it first."""
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError:
        return socket.create_server(("127.0.0.1", 0))


def url_of(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_the_real_server_is_sent_the_token(server: Server, tmp_path: Path) -> None:
    done = listed(tmp_path, PLIANT_SERVER=server.url, PLIANT_TOKEN=server.token)
    assert done.returncode == 0, done.stderr


def test_a_thief_of_the_port_gets_no_token(server: Server, bob: pwd.struct_passwd, tmp_path: Path) -> None:
    server.kill()
    with taken(server.port) as port, acting(bob, lambda out: served(port, out)) as thief:
        thief.until(b"ready\n")
        done = listed(tmp_path, PLIANT_SERVER=url_of(port), PLIANT_TOKEN=server.token)
        said = thief.end()
    assert done.returncode == 8
    assert "has not proven to be this token's server. The token was not sent." in done.stderr
    assert b"GET /proof?" in said
    assert server.token.encode() not in said and b"uthorization" not in said


def test_a_proof_of_another_port_is_of_no_use(server: Server, bob: pwd.struct_passwd, tmp_path: Path) -> None:
    """The server restarted on another port, and the thief asks it for the proof."""
    with taken(0) as port, acting(bob, lambda out: served(port, out, server.port)) as thief:
        thief.until(b"ready\n")
        done = listed(tmp_path, PLIANT_SERVER=url_of(port), PLIANT_TOKEN=server.token)
        said = thief.end()
    assert done.returncode == 8 and "has not proven" in done.stderr
    assert b"GET /proof?" in said
    assert server.token.encode() not in said and b"uthorization" not in said


def test_a_socket_of_another_user_gets_no_byte(bob: pwd.struct_passwd, home: Path, tmp_path: Path) -> None:
    state = home / "state"
    state.mkdir(mode=0o755)
    os.chown(state, bob.pw_uid, bob.pw_gid)
    record = {"url": "http://127.0.0.1:1", "socket": "sock", "pid": 1}

    def work(out: int) -> None:
        (state / "server.json").write_text(json.dumps(record))
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(state / "sock"))
        os.chmod(state / "sock", 0o777)
        listener.listen()
        served(listener, out)

    with acting(bob, work) as thief:
        thief.until(b"ready\n")
        done = listed(tmp_path, PLIANT_STATE=str(state))
        said = thief.end()
    assert done.returncode == 8
    assert f"Error: {state}/sock is served by user {bob.pw_name}." in done.stderr
    assert said == b"ready\n"

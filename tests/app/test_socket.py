"""The Unix socket of a state folder: the kernel tells the server who is at the other end."""

import asyncio
import contextlib
import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse

from pliant.api.connections.peer import PEER, PeerProtocol, listen
from pliant.api.errors import Unauthorized
from pliant.api.identity.auth import Authority
from pliant.client import transport
from pliant.client.client import Client
from pliant.client.errors import Unreachable
from pliant.client.transport import Transport


def ask(port: int) -> object:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        connection.request("GET", "/")
        return json.loads(connection.getresponse().read())


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A server that echoes peer and token, at a path longer than a socket's address may be."""
    folder = tmp_path / ("x" * 120)
    folder.mkdir()

    async def app(scope, receive, send):  # type: ignore[no-untyped-def]
        request = Request(scope)
        told = {"peer": request.state._state.get(PEER), "token": request.headers.get("authorization")}
        await JSONResponse(told)(scope, receive, send)

    server = uvicorn.Server(uvicorn.Config(app, http=PeerProtocol, lifespan="off", log_config=None))
    unix = listen(folder / "sock")
    tcp = socket.create_server(("127.0.0.1", 0))
    unix.listen()
    thread = threading.Thread(target=server.run, kwargs={"sockets": [unix, tcp]}, daemon=True)
    thread.start()
    (folder / "port").write_text(str(tcp.getsockname()[1]))
    yield folder / "sock"
    ask(tcp.getsockname()[1])  # so it has accepted all earlier connections
    deadline = time.monotonic() + 120
    while server.server_state.connections and time.monotonic() < deadline:
        time.sleep(0.01)
    server.should_exit = True
    thread.join(120)
    for listener in (unix, tcp):
        listener.close()


def test_the_server_knows_its_peer_and_no_token_is_sent(path: Path) -> None:
    asking = Transport("http://127.0.0.1:1", "the token", socket=str(path))
    said = asking.call("GET", "/")
    asking.close()
    assert said == {"peer": os.geteuid(), "token": None}
    assert path.stat().st_mode & 0o777 == 0o600


def test_who_comes_by_the_port_is_nobody(path: Path) -> None:
    port = int((path.parent / "port").read_text())
    assert ask(port) == {"peer": None, "token": None}


def test_a_socket_of_another_user_is_sent_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = os.geteuid() + 1
    monkeypatch.setattr(transport.os, "geteuid", lambda: other)
    monkeypatch.setattr(transport, "_ROOT", other)  # the tests may run as root
    with pytest.raises(Unreachable, match="is served by user "):
        Client("http://127.0.0.1:1", "the token", socket=str(path)).version()


def test_a_server_that_is_gone(path: Path, tmp_path: Path) -> None:
    left = listen(tmp_path / "left")
    left.close()
    with pytest.raises(Unreachable, match="No server answers"):
        Client("http://127.0.0.1:1", socket=str(tmp_path / "left")).version()
    listen(tmp_path / "left").close()  # replaces the socket of a dead server


def test_another_user_is_told_whose_server_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(lambda: "token", b"secret")
    assert asyncio.run(authority.peer(os.geteuid())).owner
    with pytest.raises(Unauthorized, match="This server belongs to user"):
        asyncio.run(authority.peer(os.geteuid() + 1))

"""The server closes connections whose requests are begun and never finished."""

import contextlib
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import pytest

from pliant.api.connections import peer
from pliant.api.connections.front import Front
from pliant.api.connections.listeners import open_port

WHOLE = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nok"


@contextmanager
def _served() -> Iterator[tuple[str, int]]:
    """An application that answers how many connections wait for the rest of a request."""

    async def counting(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        waiting = sum(1 for it in front.server_state.connections if it._arriving is not None)
        headers = [(b"content-length", b"1"), (b"from", scope["client"][0].encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"%d" % waiting})

    with open_port("127.0.0.1", 0) as listener:
        listener.listen()
        front = Front(counting, None, patience=1)
        thread = Thread(target=front.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        yield listener.getsockname()
        front.should_exit = True
        thread.join(60)
        assert not thread.is_alive()


def _answer(client: socket.socket, until: bytes = b"\0") -> bytes:
    """What the server sends until these bytes come or it closes the connection."""
    client.settimeout(60)
    found = b""
    while not found.endswith(until) and (piece := client.recv(65536)):
        found += piece
    return found


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"G",
        b"GET /api/v1/workloads HTTP/1.1\r\nHost: localhost\r\n",
        WHOLE[:-1],
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    ],
    ids=["nothing", "a byte", "half a head", "half a body", "half a chunk"],
)
def test_a_request_that_does_not_come_whole_is_given_up(
    monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    monkeypatch.setattr(peer, "ARRIVES", 0.2)
    with _served() as place, socket.create_connection(place) as client:
        client.sendall(begun)
        assert _answer(client).startswith(b"HTTP/1.1 408 ")


def test_nor_is_the_second_one_of_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    with _served() as place, socket.create_connection(place) as client:
        client.sendall(WHOLE)
        assert _answer(client, b"\r\n\r\n0").startswith(b"HTTP/1.1 200 "), (
            "none waits while an answer is made"
        )
        monkeypatch.setattr(peer, "ARRIVES", 0.2)
        client.sendall(WHOLE[:-1])
        assert _answer(client).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    "endless",
    [
        b"GET /" + b"a" * 2**17,
        b"GET / HTTP/1.1\r\nHost: localhost\r\nLong: " + b"a" * 2**17,
        b"GET / HTTP/1.1\r\n" + b"Many: of them\r\n" * 2**14,
    ],
    ids=["path", "header", "headers"],
)
def test_a_head_that_does_not_end_is_not_kept(endless: bytes) -> None:
    with _served() as place, socket.create_connection(place) as client:
        found = b"HTTP/1.1 400 "  # empty after a reset: the server closes before it has read all
        with contextlib.suppress(ConnectionError):
            client.sendall(endless)
            found = _answer(client)
        assert found.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    "wrong",
    [
        b"nonsense\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: local\x00host\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nName : value\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"CONNECT elsewhere:80 HTTP/1.1\r\nHost: a\r\n\r\n",
    ],
)
def test_what_can_be_read_in_two_ways_is_not_read(wrong: bytes) -> None:
    with _served() as place, socket.create_connection(place) as client:
        client.sendall(wrong)
        assert _answer(client).startswith(b"HTTP/1.1 400 ")


def test_a_client_does_not_choose_from_where_it_seems_to_come() -> None:
    """Not even a client on this machine: the audit log names the real source."""
    with _served() as place, socket.create_connection(place) as client:
        client.sendall(WHOLE.replace(b"localhost\r\n", b"localhost\r\nX-Forwarded-For: 203.0.113.9\r\n"))
        assert b"\r\nfrom: 127.0.0.1\r\n" in _answer(client, b"\r\n\r\n0")

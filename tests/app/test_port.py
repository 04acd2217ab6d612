"""A server without a given port takes the one that it had before, unless another program has it."""

import socket
from pathlib import Path

import pytest

from pliant.api.connections.listeners import open_port
from pliant.store.folder import StateFolder


def port_of(before: int) -> int:
    with open_port("127.0.0.1", 0, before) as listener:
        return int(listener.getsockname()[1])


def test_the_port_of_the_last_server_is_taken_again() -> None:
    for _ in range(20):  # another program may have taken a released port
        port = port_of(0)
        if port_of(port) == port:
            return
    raise AssertionError("never the same port")


def test_a_port_that_somebody_has_taken_is_passed_over() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert port_of(taken.getsockname()[1]) != taken.getsockname()[1]


@pytest.mark.parametrize(("text", "port"), [("8080\n", 8080), ("", 0), ("x", 0), ("70000", 0), ("-1", 0)])
def test_the_port_is_noted_in_the_state_folder(tmp_path: Path, text: str, port: int) -> None:
    folder = StateFolder(tmp_path / "state")
    folder.prepare()
    assert folder.port == 0
    folder.write("port", text, mode=0o600)
    assert folder.port == port

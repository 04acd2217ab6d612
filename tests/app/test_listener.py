"""The socket that a server listens on."""

import asyncio
import socket

from pliant.api.connections.listeners import open_port


def test_answers_on_a_kept_connection_are_not_held_back() -> None:
    """A head and a body are two writes: without TCP_NODELAY the second waits for the client's delayed ACK."""
    found: list[int] = []

    async def connect(listener: socket.socket) -> None:
        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted = writer.get_extra_info("socket")
            found.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        async with await asyncio.start_server(connected, sock=listener):
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            await reader.read()
            writer.close()
            await writer.wait_closed()

    with open_port("127.0.0.1", 0) as listener:
        asyncio.run(connect(listener))
    assert found == [1]

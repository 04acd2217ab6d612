"""Runs the web server on its sockets: with TLS on the network, without TLS on the Unix socket."""

import asyncio
import functools
import logging
import socket
import ssl
from collections.abc import Sequence
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

from pliant.api.connections.peer import limited


class QuietSocket(WSProtocol):
    """Logs no address: that of a page contains what opens it."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.logger = logging.getLogger(__name__)
        self.logger.setLevel(logging.WARNING)


class Front(uvicorn.Server):
    """Serves an application until it is told to end."""

    def __init__(
        self, app: ASGIApp, tls: ssl.SSLContext | None, *, patience: int, connections: int = 0
    ) -> None:
        """`patience`: seconds for which running requests may go on once the server is told to end.

        `connections`: most connections of one account over the Unix socket at a time; 0: no limit.
        """
        super().__init__(
            uvicorn.Config(
                app,
                loop="asyncio",  # whatever else is installed
                http=limited(connections),
                ws=QuietSocket,
                ws_max_size=2**20,
                log_config=None,
                access_log=False,
                lifespan="off",
                proxy_headers=False,  # anyone on this machine could name another source for the audit
                timeout_graceful_shutdown=patience,
            )
        )
        self._tls = tls

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        given: Sequence[socket.socket] = sockets or ()
        sealed = [it for it in given if self._tls is not None and it.family != socket.AF_UNIX]
        await super().startup([it for it in given if it not in sealed])
        config = self.config
        kind: Any = config.http_protocol_class
        made = functools.partial(
            kind,
            config=config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        loop = asyncio.get_running_loop()
        for listener in sealed:
            self.servers.append(
                await loop.create_server(made, sock=listener, ssl=self._tls, backlog=config.backlog)
            )

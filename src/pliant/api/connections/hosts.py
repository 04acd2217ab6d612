"""Checks under which name the server is asked: a page of another site may point its own name here."""

import ipaddress

from starlette.types import ASGIApp, Receive, Scope, Send

from pliant.api.connections.certificates import covered
from pliant.api.connections.peer import PEER
from pliant.api.errors import problem


class Hosts:
    """Refuses requests whose Host is neither an address, nor `localhost`, nor one of the names given.

    A name may be `*.domain`, as in certificates.
    """

    def __init__(self, app: ASGIApp, names: frozenset[str]) -> None:
        self._app = app
        self._names = names | {"localhost"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and PEER not in scope.get("state", {}):
            for name, value in scope["headers"]:
                if name == b"host" and not self._known(value.decode("latin-1")):
                    if scope["type"] == "websocket":
                        await receive()
                        await send({"type": "websocket.close", "code": 1008})
                        return
                    answer = problem(
                        403,
                        "This server does not answer under that host name.",
                        "Use its address, such as http://127.0.0.1:PORT, or the name of its machine.",
                        "foreign-host",
                    )
                    await answer(scope, receive, send)
                    return
        await self._app(scope, receive, send)

    def _known(self, host: str) -> bool:
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        if not name or covered(name, self._names):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

"""Adds what is wrong with the server to every answer: it goes on answering while it schedules nothing."""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pliant.control.service import Service
from pliant.wire import TROUBLE


class Trouble:
    """Adds the header TROUBLE to answers while the service reports trouble."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        trouble = self._service.trouble if scope["type"] == "http" else ""
        if not trouble:
            await self._app(scope, receive, send)
            return

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[TROUBLE] = trouble
            await send(message)

        await self._app(scope, receive, told)

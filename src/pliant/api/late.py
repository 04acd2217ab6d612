"""Routes that FastAPI builds on the first request for them.

FastAPI builds models of each route's arguments and body. For all routes together this takes half a second of
processor time at each start, and few servers are asked for more than a few routes.
"""

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

from fastapi import APIRouter
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute
from starlette.routing import Match, compile_path
from starlette.types import Receive, Scope, Send

_OF_THE_PATH = frozenset({"path_regex", "path_format", "param_convertors"})

_one_at_a_time = Lock()


class LateRoute(APIRoute):
    """Knows its path, methods and right at once; builds the rest when it is first read."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **given: Any) -> None:
        self.path = path
        self.endpoint = endpoint
        self.methods = {method.upper() for method in given.get("methods") or ("GET",)}
        self.dependencies = list(given.get("dependencies") or ())
        self._first, self._last = path.partition("{")[0], path.rpartition("}")[2]
        self._given: dict[str, Any] | None = given  # None: the route is built

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") and name != "_embed_body_fields":
            raise AttributeError(name)
        if name in _OF_THE_PATH:
            self.path_regex, self.path_format, self.param_convertors = compile_path(self.path)
        else:
            self.work_out()
        return self.__getattribute__(name)

    def work_out(self) -> None:
        """Build the route, once; takes some milliseconds."""
        with _one_at_a_time:
            if self._given is not None:
                self.__dict__.update(APIRoute(self.path, self.endpoint, **self._given).__dict__)
                self._given = None

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        path = scope["path"]
        if not path.startswith(self._first) or not path.removesuffix("\n").endswith(self._last):
            return Match.NONE, {}
        return super().matches(scope)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._given is not None:  # in a thread: the event loop must not wait for it
            await run_in_threadpool(self.work_out)
        await super().handle(scope, receive, send)


class Router(APIRouter):
    """A router of LateRoutes."""

    def __init__(self, prefix: str = "", tags: Sequence[str] = ()) -> None:
        super().__init__(prefix=prefix, tags=[*tags], route_class=LateRoute)

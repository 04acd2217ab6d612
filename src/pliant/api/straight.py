"""A shortcut to the handlers, for requests that have the form that their routes expect.

For each request FastAPI tries all routes and works out the arguments of the handler and its dependencies.
Here that is done once for each route without parameters in its path. An unusual request takes FastAPI's way,
which says what is wrong with it. Both ways give the same answers.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import request_params_to_args
from fastapi.params import Body
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

JSON = b"application/json"

Values = dict[str, Any]


class _Unusual(Exception):
    """The request has an unusual form: FastAPI must handle it."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A dependency or the handler, and where its arguments come from."""

    call: Callable[..., Any]
    dependant: Dependant
    below: "tuple[tuple[str | None, _Call], ...]"  # (argument, dependency); None: the result is not used
    query: Values | None  # arguments if there is no query; None: one is required
    headers: tuple[frozenset[bytes], Values] | None  # (names, arguments if none is sent); None: required
    is_async: bool


def _call(dependant: Dependant, known: dict[int, _Call]) -> _Call | None:
    """None if it needs what only FastAPI can give. A dependency that occurs twice is one _Call."""
    it, call = dependant, dependant.call
    strange = (
        *(it.path_params, it.cookie_params, it.websocket_param_name, it.response_param_name),
        *(it.background_tasks_param_name, it.security_scopes_param_name, it.http_connection_param_name),
    )
    if call is None or any(strange) or it.concurrency is not None or not it.use_cache:
        return None
    if (found := known.get(id(call))) is not None:
        return found
    below: list[tuple[str | None, _Call]] = []
    for inner in it.dependencies:
        made = _call(inner, known)
        if made is None or not made.is_async or inner.body_params:
            return None
        below.append((inner.name, made))
    query, missing = request_params_to_args(it.query_params, {})
    given, lacking = request_params_to_args(it.header_params, {})
    names = frozenset(str(field.alias).lower().encode() for field in it.header_params)
    known[id(call)] = found = _Call(
        call,
        dependant,
        tuple(below),
        None if missing else query,
        None if lacking else (names, given),
        iscoroutinefunction(call) or iscoroutinefunction(getattr(call, "__call__", None)),  # noqa: B004
    )
    return found


class _Way:
    """The shortcut to the handler of one route."""

    def __init__(self, route: APIRoute, call: _Call) -> None:
        self.route = route
        self._call = call
        self._body = route.dependant.body_params[0] if route.dependant.body_params else None

    async def answer(self, request: Request) -> Response:
        """Raises _Unusual, and whatever the dependencies and the handler raise."""
        sent: Any = None
        if self._body is not None:
            data = await request.body()
            kind = next((value for name, value in request.scope["headers"] if name == b"content-type"), b"")
            if kind != JSON:
                raise _Unusual
            try:
                sent = json.loads(data)
            except (ValueError, RecursionError):
                raise _Unusual from None
            if sent is None:
                raise _Unusual
        call = self._call
        values = await self._values(call, request, {})
        if self._body is not None:
            values[self._body.name], wrong = self._body.validate(sent, {}, loc=("body",))
            if wrong:
                raise _Unusual
        made = call.call(**values) if call.is_async else run_in_threadpool(call.call, **values)
        response = await made
        if not isinstance(response, Response):
            raise TypeError(f"{self.route.path} answers {response!r:.40}, which is no response")
        return response

    async def _values(self, call: _Call, request: Request, solved: dict[int, Any]) -> Values:
        """The arguments; each dependency is called once."""
        values: Values = {}
        for name, inner in call.below:
            key = id(inner)
            if key not in solved:
                solved[key] = await inner.call(**await self._values(inner, request, solved))
            if name is not None:
                values[name] = solved[key]
        it = call.dependant
        if it.query_params:
            values |= self._query(call, request)
        if it.header_params:
            values |= self._headers(call, request)
        if it.request_param_name:
            values[it.request_param_name] = request
        return values

    @staticmethod
    def _query(call: _Call, request: Request) -> Values:
        if not request.scope["query_string"] and call.query is not None:
            return call.query
        return _found(request_params_to_args(call.dependant.query_params, request.query_params))

    @staticmethod
    def _headers(call: _Call, request: Request) -> Values:
        if call.headers is not None:
            names, given = call.headers
            if not any(name in names for name, _ in request.scope["headers"]):
                return given
        return _found(request_params_to_args(call.dependant.header_params, request.headers))


def _found(read: tuple[Values, list[Any]]) -> Values:
    values, wrong = read
    if wrong:
        raise _Unusual
    return values


def find(routes: Sequence[BaseRoute], method: str, path: str) -> _Way | None:
    """The shortcut to the handler that FastAPI would call; None if only FastAPI can. Takes milliseconds."""
    asked = {"type": "http", "method": method, "path": path}
    for route in routes:
        if _meets(route, path) and route.matches(asked)[0] is Match.FULL:
            return _way(route) if isinstance(route, APIRoute) else None
    return None


def _meets(route: BaseRoute, path: str) -> bool:
    """False if the route cannot match that path."""
    return not isinstance(route, APIRoute) or "{" in route.path or route.path == path


def _way(route: APIRoute) -> _Way | None:
    bodies, call = route.dependant.body_params, route.endpoint
    form = any(type(it.field_info) is not Body for it in bodies) or len(bodies) > 1
    if "{" in route.path or form or route.response_field is not None or route.response_model is not None:
        return None
    if isgeneratorfunction(call) or isasyncgenfunction(call):
        return None
    made = _call(route.dependant, {})
    return _Way(route, made) if made is not None else None


class Straight:
    """Takes the shortcut if there is one; else passes the request to `app`."""

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._find = partial(find, [*routes])
        self._ways: dict[tuple[str, str], _Way | None] = {}  # by (method, path), of requested routes
        self._unseen = {
            (method, route.path)
            for route in routes
            if isinstance(route, APIRoute) and "{" not in route.path
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = (scope["method"], scope["path"]) if scope["type"] == "http" else ("", "")
        if asked in self._unseen:
            self._ways[asked] = await run_in_threadpool(self._find, *asked)
            self._unseen.discard(asked)
        way = self._ways.get(asked)
        if way is None:
            await self._app(scope, receive, send)
            return
        scope.update(route=way.route, endpoint=way.route.endpoint, path_params={})
        request = Request(scope, receive, send)
        try:
            response: Awaitable[None] = (await way.answer(request))(scope, receive, send)
        except _Unusual:
            response = self._app(scope, _again(await request.body(), receive), send)
        await response


def _again(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives again the body that was read."""
    given = False

    async def told() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return told

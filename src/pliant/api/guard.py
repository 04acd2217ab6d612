"""Checks rights: every route names the right that it needs, and how to find the thing that it is about.

    @router.post("/nodes/{name}/cordon", dependencies=[needs("nodes:update")], ...)
    @router.get("/{identity}/logs", dependencies=[needs("workloads:logs", workload)], ...)

A right without `find` must hold at some scope; the route then checks the place itself, with `demand`, or
leaves out what the caller may not see. check_routes refuses an application with a route that names no right.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, NoReturn

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from pliant.api.context import Context, check_parameters
from pliant.api.errors import Forbidden
from pliant.api.identity.auth import principal_now
from pliant.api.identity.principal import PASSWORD, Principal, place_of, unit_place
from pliant.api.journal import begin
from pliant.api.units import unit_missing, unit_named
from pliant.control.audit import TRAIL
from pliant.control.board.view import Board
from pliant.control.errors import NotFound, Refused, Unavailable
from pliant.model.rights import Place, permission
from pliant.model.workload import Workload

OPEN = "open"
"""Instead of a right: the route is open to everyone."""

ATTEMPT = "attempt"
"""Instead of a right: the route takes the token of the attempt that its path names; Gate compares the two."""


EVERY = 1.0
"""Seconds between two checks of a right during a long answer."""

FREEING = frozenset({"workloads:update", "workloads:delete", "server:operate"})
"""Rights of requests that end or free something; these are served on a full disk too."""


@dataclass(frozen=True, slots=True)
class Target:
    """The thing that a request is about, for the check of rights."""

    seen: str  # without this right the thing counts as missing
    place: Place
    missing: NotFound  # raised then
    own: bool = False
    shared: bool = False


Find = Callable[[Request, Context, Principal], Awaitable[Target]]


class Needs:
    """A route's dependency: refuses a caller who lacks the right."""

    def __init__(self, right: str, find: Find | None, writes: bool | None) -> None:
        if right not in (OPEN, ATTEMPT):
            permission(right)
        self.right = right
        self.find = find
        self.writes = not right.endswith(":read") if writes is None else writes

    async def __call__(self, request: Request) -> None:
        if self.right == OPEN:
            return
        here: Context = request.app.state.context
        caller: Principal = request.state.principal
        if self.right == ATTEMPT:
            if not caller.attempt:
                raise Forbidden("This route is for the job itself.", "Its token is in $PLIANT_TOKEN_FILE.")
            return
        if self.writes:
            frees = self.right in FREEING
            if here.scarce(frees) and not frees:
                raise Unavailable(
                    "The server's disk is nearly full: jobs can be stopped and deleted, nothing else.",
                    f"Free space in {here.server.state} and try again.",
                )
            TRAIL.set(begin(request, caller, self.right))
        target = await self.find(request, here, caller) if self.find is not None else None
        if target is None:
            if not caller.may(self.right):
                refuse(caller, self.right)
        else:
            check(caller, self.right, target)
        check_parameters(request)


def needs(right: str, find: Find | None = None, *, writes: bool | None = None) -> Any:
    """`find` finds the thing. `writes`: False if nothing that is stored changes; None: by the right."""
    return Depends(Needs(right, find, writes))


def check(caller: Principal, right: str, target: Target) -> None:
    """Raise NotFound if the caller may not see the thing, Forbidden if it may only see it."""
    if not caller.may(target.seen, target.place, own=target.own, shared=target.shared):
        raise target.missing
    if not caller.may(right, target.place, own=target.own, shared=target.shared):
        refuse(caller, right, target.place)


async def while_allowed(
    request: Request, right: str, find: Find, chunks: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
    """The chunks of a long answer until the caller loses the right, which is checked every EVERY seconds."""
    here: Context = request.app.state.context
    due = time.monotonic() + EVERY
    async with aclosing(chunks):  # type: ignore[type-var]
        async for chunk in chunks:
            if time.monotonic() >= due:
                due = time.monotonic() + EVERY
                try:
                    caller = await principal_now(request)
                    check(caller, right, await find(request, here, caller))
                except Refused:
                    return
            yield chunk


def refuse(caller: Principal, right: str, place: Place | None = None) -> NoReturn:
    if caller.only == PASSWORD:
        raise Forbidden("Your password was set by an administrator.", "Set your own: pliant user password")
    it = permission(right)
    where = "" if place is None else f" in this {place.kind}"
    bound = f" The access key is bound to {caller.only}." if caller.only else ""
    raise Forbidden(
        f"You may not {it.action} {it.resource}{where}: permission {right} is missing.{bound}",
        "An administrator grants it with: pliant access-rule create",
    )


def demand(caller: Principal, right: str, place: Place) -> None:
    """Raise Forbidden unless the right holds there."""
    if not caller.may(right, place):
        refuse(caller, right, place)


def demand_in_project(caller: Principal, right: str, key: str, board: Board, field: str = "") -> None:
    """Like `check`, for a project by id or name: NotFound, with that field, if it may not be seen.

    '' passes: the service says that no project was named.
    """
    if key:
        check(caller, right, unit_target(board, "project", key, field))


# -- where things are -------------------------------------------------------------------------------


def unit_target(board: Board, what: str, key: str, field: str = "") -> Target:
    """The target of a request about the project or department with that id or name.

    Raises NotFound, with that field, if there is none.
    """
    missing, view = unit_missing(what, key, field), unit_named(board, what, key)
    if view is None:
        raise missing
    return Target(f"{what}s:read", unit_place(view.queue), missing)


def about(found: Workload | None, identity: str, board: Board, caller: Principal) -> Target:
    """The target of a route about a workload. Raises NotFound if there is none."""
    missing = NotFound(
        f"There is no workload {identity[:60]!r}.", "Its id is a UUID; find it with filterBy=name==<name>."
    )
    if found is None:
        raise missing
    place = place_of(board, found.project)
    return Target("workloads:read", place, missing, caller.owns(found), caller.shares(found))


def known_workload(here: Context, identity: str) -> Workload | None:
    """The workload with that id, also a deleted one that is still remembered; None if there is none."""
    view = here.service.board.workloads.get(identity)
    if view is not None:
        return view.workload
    return next((row for row in here.service.ended() if row.id == identity), None)


async def workload(request: Request, here: Context, caller: Principal) -> Target:
    """The workload that `{identity}` in the path names."""
    identity, board = request.path_params["identity"], here.service.board
    view = board.workloads.get(identity)
    found = view.workload if view is not None else await run_in_threadpool(known_workload, here, identity)
    return about(found, identity, board, caller)


async def session(request: Request, here: Context, caller: Principal) -> Target:
    """The workload in which the command of `{session}` runs."""
    identity = here.sessions.attempt(request.path_params["session"]).workload
    found = await run_in_threadpool(known_workload, here, identity)
    return about(found, identity, here.service.board, caller)


def unit(what: str) -> Find:
    """Finds the project or department that `{key}` names, by id or name."""

    async def find(request: Request, here: Context, caller: Principal) -> Target:
        return unit_target(here.service.board, what, request.path_params["key"])

    return find


# -- all routes -------------------------------------------------------------------------------------


def needs_of(route: BaseRoute) -> Needs | None:
    """The Needs of a route; None if it has none."""
    given = route.dependencies if isinstance(route, APIRoute) else ()
    return next((it.dependency for it in given if isinstance(it.dependency, Needs)), None)


def check_routes(routes: Iterable[BaseRoute]) -> None:
    """Raise RuntimeError if a route names no right."""
    bare = [getattr(route, "path", str(route)) for route in routes if needs_of(route) is None]
    if bare:
        raise RuntimeError(f"These routes name no permission: {', '.join(bare)}")

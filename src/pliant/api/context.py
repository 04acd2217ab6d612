"""What every route may use: the service, the facts about this server, what only its process can do."""

import difflib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from weakref import WeakKeyDictionary

from fastapi import Depends, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from pliant.api.identity.auth import Authority
from pliant.api.identity.principal import Principal
from pliant.api.pace import AtOnce, Bounds, Pace
from pliant.api.redaction import sight_when_asked
from pliant.api.responses.workloads import Renderer
from pliant.api.streaming.pulse import Pulse
from pliant.api.streaming.sessions import Sessions
from pliant.control.board.view import Board
from pliant.control.errors import BadRequest
from pliant.control.fractions import Finding
from pliant.control.ports import Stray
from pliant.control.service import Service

if TYPE_CHECKING:
    from pliant.api.identity.signin import Logins


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """The facts about this server that the API reports."""

    url: str
    version: str
    pid: int
    started: int  # ms since the epoch
    state: str  # path of its state folder
    epoch: int  # of its leadership
    simulated: bool
    role: str = "leader"  # or standby
    standby: Callable[[], str | None] = lambda: None  # URL of the standby server
    notice: str = ""  # what it told the command that started it
    strays: Callable[[], Sequence[Stray]] = tuple  # processes on its GPUs that belong to no task
    findings: Callable[[], Sequence[Finding]] = tuple  # what is enforced of GPU fractions; may take seconds


@dataclass(slots=True)
class Rendering:
    """The last renderer, shared by all requests while it is current."""

    last: Renderer | None = None


@dataclass(frozen=True, slots=True)
class Context:
    service: Service
    authority: Authority
    server: ServerInfo
    sessions: Sessions
    pulse: Pulse
    shutdown: Callable[[bool], None]  # True: stop all tasks first
    backup: Callable[[Path], None]
    bundle: Callable[[], bytes]  # a zip
    scarce: Callable[[bool], bool]  # True if the disk is nearly full; with True it then gives up the reserve
    closing: Callable[[], bool]  # True once the server is about to end: streams then end
    renew: Callable[[], None] | None  # replaces the token of the state folder; None: there is none
    bounds: Bounds  # of one account on a box
    pace: Pace  # of submissions
    streams: AtOnce
    rendering: Rendering = field(default_factory=Rendering)
    logins: "Logins | None" = None  # by an OpenID Connect provider; None: no provider is set

    def renderer(self, caller: Principal, board: Board | None = None) -> Renderer:
        """The renderer of the newest board, or of the given one, for that caller."""
        board, now, uses = board or self.service.board, self.service.now(), self.service.uses()
        renderer = self.rendering.last
        if renderer is None or not renderer.current(board, now, uses):
            renderer = self.rendering.last = Renderer(board, now, uses, self.authority.box, renderer)
        return renderer.read_by(caller.inside, sight_when_asked(board, caller))


DRY_RUN = "dryRun"
AT_ONCE = ("/exec", "/server/", "/attempts/", "/trash/", "/token", "/what-if", "/preview")
"""Parts of paths whose writes act outside of the recorded state, so that a dry run is not possible."""


def rehearsed(route: APIRoute) -> bool:
    """True for a write whose `dryRun` is handled here; some routes have a `dryRun` of their own."""
    reads = (route.methods or set()) <= {"GET", "HEAD"}
    return not reads and DRY_RUN not in parameters(route) and not any(it in route.path for it in AT_ONCE)


_known: WeakKeyDictionary[Callable[..., Any], frozenset[str]] = WeakKeyDictionary()  # by endpoint


def parameters(route: APIRoute) -> frozenset[str]:
    """Names of the query parameters that a route knows."""
    if route.endpoint not in _known:
        _known[route.endpoint] = frozenset(_parameters(route.dependant))
    return _known[route.endpoint]


def _parameters(dependant: Dependant) -> Iterator[str]:
    yield from (field.alias for field in dependant.query_params)
    for inner in dependant.dependencies:
        yield from _parameters(inner)


def check_parameters(request: Request) -> None:
    """Raise BadRequest for an unknown query parameter, with the nearest name that the route takes."""
    asked = request.query_params
    if not asked:
        return
    route = request.scope["route"]
    known = parameters(route)
    for name in asked:
        if name not in known and not (name == DRY_RUN and rehearsed(route)):
            near = difflib.get_close_matches(name, [*known, DRY_RUN], 1)
            hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(sorted(known)) or 'none'}."
            raise BadRequest(f"There is no parameter {name[:60]!r} here.", hint, field=name[:60])


async def _context(request: Request) -> Context:
    """The application's context; with ?dryRun=true its service tries changes instead of making them."""
    context: Context = request.app.state.context
    asked = request.query_params
    check_parameters(request)
    if DRY_RUN not in asked or DRY_RUN in parameters(request.scope["route"]):
        return context
    if asked[DRY_RUN] not in ("true", "false"):
        raise BadRequest(f"The parameter {DRY_RUN} must be true or false.", field=DRY_RUN)
    return replace(context, service=context.service.dry()) if asked[DRY_RUN] == "true" else context


Here = Annotated[Context, Depends(_context)]

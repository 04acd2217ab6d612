"""Builds the ASGI application: the whole API over a service."""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.types import ASGIApp

from pliant.api import errors
from pliant.api.connections.hosts import Hosts
from pliant.api.context import Context, ServerInfo
from pliant.api.guard import OPEN, check_routes, needs
from pliant.api.identity.auth import Authority, Gate
from pliant.api.identity.openid import Relying
from pliant.api.identity.signin import Logins
from pliant.api.late import LateRoute
from pliant.api.pace import NO_BOUNDS, AtOnce, Bounds, Pace
from pliant.api.repeats import Repeats
from pliant.api.responses.encoding import answer
from pliant.api.routes import email, notices
from pliant.api.routes import server as server_routes
from pliant.api.routes.access import access_keys, audit_log, identity, openid, roles, rules, security
from pliant.api.routes.figures import fairness, measurements, replay, reports, telemetry, usage
from pliant.api.routes.organization import (
    bookings,
    machines,
    organization,
    priorities,
    scheduling,
)
from pliant.api.routes.workloads import (
    assets,
    history,
    job,
    pods,
    policies,
    streams,
    submit,
    trash,
    waiting,
    whatif,
    workloads,
)
from pliant.api.schemas.description import Api
from pliant.api.streaming.pulse import Pulse
from pliant.api.streaming.sessions import Sessions
from pliant.api.trouble import Trouble
from pliant.control.explain.dry import Tried
from pliant.control.ports import Halt
from pliant.control.service import Service
from pliant.model.identity import Provider

__all__ = ["ServerInfo", "create_app"]


def create_app(
    service: Service,
    *,
    token: Callable[[], str],
    secret: bytes,
    server: ServerInfo,
    shutdown: Callable[[bool], None],
    backup: Callable[[Path], None],
    bundle: Callable[[], bytes],
    scarce: Callable[[bool], bool] = lambda spend: False,
    closing: Callable[[], bool] = lambda: False,
    renew: Callable[[], None] | None = None,
    box: bool = False,
    least: int = 0,
    bounds: Bounds = NO_BOUNDS,
    provider: Provider | None = None,
    hosts: frozenset[str] = frozenset(),
    beside: Callable[[ASGIApp], ASGIApp] | None = None,
    halt: Halt = lambda point: None,
) -> FastAPI:
    """The ASGI application. The token `token()` grants all rights; `secret` signs the tokens that are issued.

    `box`: accounts of the machine share the server, those with a uid of at least `least`; the token then
    grants nothing. `bounds`: limits of each account. `hosts`: names, in lower case, that a request's Host may
    have besides `localhost` and any address. `beside` wraps the application that answers the API into one
    that answers more, on the same port.

    `shutdown(stop_tasks)` returns at once and ends the server soon; `backup(path)` writes the store there;
    `bundle()` returns a zip. `scarce(spend)` is True if the disk is nearly full; with `spend` it then gives
    up the reserved space. `closing()` becomes True when the server is about to end: streams then end within a
    second. `renew()` replaces the token; None: there is no token to replace.
    """
    app = Api(
        title="Pliant",
        version=server.version,
        description="Shares GPUs between teams. Paths and fields follow Run:ai's API.",
        openapi_url=None,  # added below: it is made in a thread, because that takes a while
        docs_url=None,  # these pages load scripts from other sites
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # looked for in every request
    )
    authority = Authority(token, secret, access=lambda: service.board.access, box=box, least=least)
    app.state.context = Context(
        service=service,
        authority=authority,
        server=server,
        sessions=Sessions(service, most=bounds.commands),
        pulse=Pulse(service),
        shutdown=shutdown,
        backup=backup,
        bundle=bundle,
        scarce=scarce,
        closing=closing,
        renew=renew,
        bounds=bounds,
        pace=Pace(
            lambda: bounds.submissions,
            "submits more than {rate} jobs per second",
            "Try again in 1 s, or submit many equal jobs at once: pliant submit --array 0-99",
        ),
        streams=AtOnce(bounds.streams, "streams of the server open", "Close one: a log that is followed."),
        logins=Logins(Relying(provider)) if provider is not None else None,
    )
    errors.install(app)
    app.add_exception_handler(Tried, whatif.tried)
    for router in ROUTERS:
        app.router.routes.extend(router.routes)  # include_router would match each request twice
    public = (server_routes.public, openid.public)
    app.open = frozenset(
        route.path for router in public for route in router.routes if isinstance(route, APIRoute)
    )
    app.router.route_class = LateRoute
    everybody = [needs("self:read")]
    app.get("/openapi.json", include_in_schema=False, dependencies=everybody)(lambda: answer(app.openapi()))
    app.get("/api/docs", include_in_schema=False, dependencies=[needs(OPEN)])(app.reference)
    check_routes(app.routes)
    app.add_middleware(Repeats, service=service, vault=authority.vault, halt=halt)
    app.add_middleware(Gate, authority=authority, service=service)
    app.add_middleware(Trouble, service=service)
    if beside is not None:
        app.add_middleware(beside)
    asked = urlsplit(provider.address).hostname if provider is not None else None
    app.add_middleware(Hosts, names=hosts | {asked or "localhost"})
    app.add_middleware(errors.Guard)
    return app


ROUTERS = (
    submit.router,  # the most requested first: routes are tried in this order
    server_routes.public,
    server_routes.router,
    openid.public,
    openid.router,
    telemetry.router,
    measurements.router,
    waiting.router,
    pods.router,
    history.router,
    job.router,
    streams.router,
    workloads.router,
    trash.router,
    organization.router,
    priorities.router,
    bookings.router,
    machines.router,
    scheduling.router,
    whatif.router,
    assets.router,
    policies.router,
    replay.router,
    reports.router,
    fairness.router,
    audit_log.router,
    usage.router,
    notices.router,
    email.router,
    identity.router,
    access_keys.router,
    security.router,
    rules.router,
    roles.router,
)

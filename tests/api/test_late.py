"""A route is built at its first request, and answers as FastAPI's own route would."""

import subprocess
import sys
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from pliant.api.late import LateRoute, Router

START = """
import pliant.app
from pliant.api.app import ROUTERS
routes = [route for router in ROUTERS for route in router.routes]
print(len(routes), sum("dependant" in vars(route) for route in routes))
"""


def test_a_start_works_out_none() -> None:
    done = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, check=True)
    routes, worked_out = map(int, done.stdout.split())
    assert routes > 300
    assert worked_out == 0


def app_of(kind: type[APIRoute]) -> FastAPI:
    app = FastAPI()
    router = Router("/things", ["things"])
    router.route_class = kind

    @router.get("/first")
    def first() -> dict[str, str]:
        return {"it": "first"}

    @router.get("/{name}/size")
    def size(name: str, unit: int = 1) -> dict[str, Any]:
        """How large it is."""
        return {"name": name, "unit": unit}

    @router.put("/{name}", status_code=201)
    def put(name: str, body: dict[str, int]) -> dict[str, Any]:
        return {"name": name, **body}

    app.router.routes.extend(router.routes)
    return app


def worked_out(app: FastAPI) -> list[str]:
    late = [route for route in app.routes if isinstance(route, LateRoute)]
    return [route.path for route in late if "dependant" in vars(route)]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/things/first", None),
        ("GET", "/things/a/size?unit=3", None),
        ("GET", "/things/a/size?unit=x", None),
        ("GET", "/things/a%0A/size%0A", None),
        ("GET", "/things/a/b/size", None),
        ("GET", "/things/", None),
        ("GET", "/other/a/size", None),
        ("DELETE", "/things/first", None),
        ("POST", "/things/a", None),
        ("PUT", "/things/a", {"b": 1}),
        ("PUT", "/things/a", {"b": "x"}),
        ("GET", "/openapi.json", None),
    ],
)
def test_it_answers_as_fastapi_would(method: str, path: str, body: Any) -> None:
    late, plain = (
        TestClient(app_of(kind)).request(method, path, json=body) for kind in (LateRoute, APIRoute)
    )
    assert (late.status_code, late.headers, late.content) == (plain.status_code, plain.headers, plain.content)


def test_only_what_is_asked_for_is_worked_out() -> None:
    app = app_of(LateRoute)
    with TestClient(app) as client:
        assert client.delete("/things/a/size").status_code == 405
        assert client.get("/nothing").status_code == 404
        assert client.get("/things/a/size").status_code == 200
        assert worked_out(app) == ["/things/{name}/size"]


def test_what_it_has_not_it_does_not_have() -> None:
    route = app_of(LateRoute).routes[-1]
    with pytest.raises(AttributeError):
        route.nothing  # type: ignore[attr-defined]  # noqa: B018

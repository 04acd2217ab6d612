"""A stage, a client that may do everything, and shorthands for what most tests do with them."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from argon2 import PasswordHasher
from fastapi.testclient import TestClient

from pliant.api.identity import passwords
from tests.api.stage import IMAGE, TOKEN, Stage, stage, until

CHEAP = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


class Api:
    """Requests as the owner; answers decoded."""

    def __init__(self, on: Stage, http: TestClient) -> None:
        self.stage = on
        self.http = http

    def call(self, method: str, path: str, status: int = 200, **options: Any) -> Any:
        answer = self.http.request(method, path, **options)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    def at_once(self, *asked: tuple[str, str, Any]) -> list[int]:
        """Statuses of requests that have all read the state before any of them changes it."""
        together, do = threading.Barrier(len(asked), timeout=60), self.stage.loop.call

        def call(work: Any) -> Any:
            together.wait()
            return do(work)

        with patch.object(self.stage.loop, "call", call), ThreadPoolExecutor(len(asked)) as pool:
            sent = [pool.submit(self.http.request, method, path, json=body) for method, path, body in asked]
            return [it.result().status_code for it in sent]

    def get(self, path: str, status: int = 200, **params: Any) -> Any:
        return self.call("GET", path, status, params=params)

    def submit(self, name: str = "a", gpus: float | None = 1, kind: str = "trainings", **spec: Any) -> Any:
        compute = {} if gpus is None else {"compute": {"gpuDevicesRequest": gpus}}
        body = {"name": name, "projectName": "default", "spec": {"image": IMAGE, **compute, **spec}}
        return self.call("POST", f"/api/v1/workloads/{kind}", 202, json=body)

    def item(self, identity: str) -> Any:
        return self.get(f"/api/v1/workloads/{identity}")

    def running(self, identity: str) -> Any:
        """The workload once it runs."""
        until(lambda: self.item(identity)["phase"] == "Running")
        return self.item(identity)

    def stopped(self, identity: str) -> None:
        """Waits until a suspended workload has stopped."""
        until(lambda: self.item(identity)["phase"] == "Stopped")


@pytest.fixture(scope="module", autouse=True)
def cheap_passwords() -> Iterator[None]:
    """Replaces the password hash by a cheap one: a real hash takes 0.1 s of processor time on purpose."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(passwords, "_hasher", CHEAP)
        patched.setattr(passwords, "_NOBODYS", CHEAP.hash("nobody knows"))
        yield


@pytest.fixture
def on_stage(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path) as made:
        yield made


@pytest.fixture(scope="session")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """One Api for all requests that must change nothing; it never has a workload."""
    owner = {"Authorization": f"Bearer {TOKEN}"}
    with stage(tmp_path_factory.mktemp("quiet")) as made, TestClient(made.app(), headers=owner) as http:
        yield Api(made, http)


@pytest.fixture
def api(on_stage: Stage) -> Iterator[Api]:
    owner = {"Authorization": f"Bearer {TOKEN}"}
    with TestClient(on_stage.app(), headers=owner, raise_server_exceptions=False) as http:
        yield Api(on_stage, http)

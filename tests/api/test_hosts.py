"""A page of another site that resolves its own name to this server (DNS rebinding) gets no answer."""

import pytest

from tests.api.conftest import Api


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example"]
)
@pytest.mark.parametrize("path", ["/healthz", "/api/v1/workloads", "/metrics", "/api/v1/token"])
def test_a_foreign_host(quiet: Api, host: str, path: str) -> None:
    answer = quiet.http.get(path, headers={"Host": host})
    assert answer.status_code == 403 and answer.json()["reason"] == "foreign-host"


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:8080",
        "[::1]:8080",
        "::1",
        "localhost",
        "LOCALHOST:1",
        "testserver",
        "10.1.2.3",
    ],
)
def test_an_own_name_or_an_address(quiet: Api, host: str) -> None:
    assert quiet.http.get("/api/v1/workloads", headers={"Host": host}).status_code == 200

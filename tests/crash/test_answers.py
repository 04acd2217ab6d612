"""kill -9 of the server between the record of a change and its answer; the request is sent again."""

import pytest

from pliant.client import Client
from pliant.client.errors import PliantError
from tests.crash.rig import Rig

KEYS = "/api/v1/access-keys"
PROJECTS = "/api/v1/org-unit/projects"
REPORTS = "/api/v1/org-unit/reports"


def post(client: Client, path: str, body: dict[str, str]) -> dict[str, str]:
    return client._http.call("POST", path, body=body, headers={"Idempotency-Key": "the-same"})


@pytest.mark.parametrize(
    ("path", "listed"),
    [(KEYS, "accessKeys"), (PROJECTS, "projects"), ("/api/v1/org-unit/reports", "reports")],
)
def test_what_was_made_is_told_and_not_made_again(rig: Rig, path: str, listed: str) -> None:
    body = {"name": "mine"}
    if path == REPORTS:
        body |= {"start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"}
    rig.start(halt="answered")
    with rig.client() as client, pytest.raises(PliantError):
        post(client, path, body)
    rig.until(rig.died, "the server dies once the change is made")
    rig.restart()
    with rig.client() as client:
        made = post(client, path, body)
        assert made == post(client, path, body)
        found = [it for it in client._http.call("GET", path)[listed] if it["name"] == "mine"]
        assert [it["id"] for it in found] == [made["id"]]

"""Puts people and rules into a stage's store, and makes clients that act as them."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fastapi.testclient import TestClient

from pliant.control.state.draft import Draft
from pliant.model.identity import AccessRule, Application, subject_of
from pliant.model.rights import Place
from tests.api.conftest import Api

SECRET_OF_ALL = "5" * 43


def program(api: Api, name: str, *rules: tuple[int, Place]) -> dict[str, str]:
    """Headers of a service account with these roles; in own mode, as a program connects over TCP."""
    digest = hashlib.sha256(f"plk_client-{name}_{SECRET_OF_ALL}".encode()).hexdigest()
    row = Application(name, name, f"client-{name}", digest)
    subject = subject_of("service-account", name)

    def run(draft: Draft) -> None:
        draft.put(row)
        for number, (role, place) in enumerate(rules):
            draft.put(AccessRule(f"{name}-{number}", subject, role, place))

    api.stage.loop.call(run)
    return {"Authorization": f"Bearer plk_{row.client}_{SECRET_OF_ALL}"}


@contextmanager
def known_as(api: Api, headers: dict[str, str]) -> Iterator[Any]:
    with TestClient(api.http.app, headers=headers, raise_server_exceptions=False) as http:
        yield http

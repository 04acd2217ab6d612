"""The client against the command line's fake server."""

from collections.abc import Iterator

import pytest

from pliant.client import Client
from tests.cli.fake import TOKEN, Fake, serving


@pytest.fixture
def fake() -> Iterator[Fake]:
    with serving() as server:
        yield server


@pytest.fixture
def client(fake) -> Iterator[Client]:
    with Client(fake.url, TOKEN) as made:
        yield made

"""One zygote for all tests here."""

from collections.abc import Iterator

import pytest

from tests.train.zygote import Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    found = Zygote()
    yield found
    found.close()

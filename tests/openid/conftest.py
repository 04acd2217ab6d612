"""One provider for a module."""

from collections.abc import Iterator

import pytest

from tests.openid.rig import Canaille, canaille


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Canaille]:
    with canaille(tmp_path_factory.mktemp("provider")) as made:
        yield made

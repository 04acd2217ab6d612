"""Every scenario also passes after changes that must not affect its verdict."""

import pytest

from tests.conformance.play import play
from tests.conformance.test_conformance import KNOWN, RUN
from tests.conformance.variants import VARIANTS, varied


def _differ(by, names):
    found = {}
    for name in names:
        case = varied(RUN[name], by)
        if case is not None and bool(text := play(case)) != (name in KNOWN):
            found[name] = text
    return found


@pytest.mark.parametrize("by", VARIANTS, ids=lambda by: by.__name__)
def test_a_third_of_the_scenarios(by):
    assert not _differ(by, list(RUN)[VARIANTS.index(by) % 3 :: 3])


@pytest.mark.long
@pytest.mark.parametrize("by", VARIANTS, ids=lambda by: by.__name__)
def test_all_scenarios(by):
    assert not _differ(by, RUN)

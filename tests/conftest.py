"""For all tests: a report of skipped tests, Ctrl-C, and the same Hypothesis examples everywhere."""

import gc
import signal
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

pytest_plugins = ["tests.house.gaps"]

# Slowness is no failure, and CI's variables change nothing; each build is judged by the same examples.
# `make test-long` looks for new ones.
CALM = {"deadline": None, "print_blob": True, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("pliant", settings(**CALM, derandomize=True, database=None))
settings.register_profile("explore", settings(**CALM, derandomize=False))
settings.load_profile("pliant")

# Otherwise Hypothesis tries constants from the sources of all modules loaded by then: a test run alone would
# have other examples, and so would all tests after a constant changes. The search also takes 0.5 s.
providers._get_local_constants = Constants


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    gc.disable()  # imports make many objects but no garbage
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()  # these objects stay: collections during tests skip them
        gc.enable()


# A shell's background jobs ignore SIGINT, and so would every program that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

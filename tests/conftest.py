"""What every test gets: a report of what was left out, Ctrl-C, Hypothesis that is the same everywhere."""

import gc
import signal
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

pytest_plugins = ["tests.house.gaps"]

# A busy machine is no failure, nor is a variable that CI sets; what is built is judged by the same examples
# every time. New ones are looked for by `make test-long`.
CALM = {"deadline": None, "print_blob": True, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("pliant", settings(**CALM, derandomize=True, database=None))
settings.register_profile("explore", settings(**CALM, derandomize=False))
settings.load_profile("pliant")

# Otherwise it tries numbers from our sources, of whatever is loaded by then: a test that is run alone would
# have other examples, and so would all after a constant is changed somewhere. To look takes 0.5 s, too.
providers._get_local_constants = Constants


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    gc.disable()  # imports make many objects and no garbage
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()  # what is there now stays: no test looks through it for garbage
        gc.enable()


# In the background of a shell it is ignored, and so it would be by every program that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

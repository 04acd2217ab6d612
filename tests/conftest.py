"""What every test gets: a report of what was left out, Ctrl-C, Hypothesis without wall-clock deadlines."""

import signal

from hypothesis import settings

pytest_plugins = ["tests.house.gaps"]

settings.register_profile("pliant", deadline=None, print_blob=True)  # a busy machine is no failure
settings.load_profile("pliant")

# In the background of a shell it is ignored, and so it would be by every program that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

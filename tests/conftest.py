"""What every test gets: the report of what was left out, and Hypothesis without wall-clock deadlines."""

from hypothesis import settings

pytest_plugins = ["tests.house.gaps"]

settings.register_profile("pliant", deadline=None, print_blob=True)  # a busy machine is no failure
settings.load_profile("pliant")

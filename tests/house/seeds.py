"""Seeds of random tests: fixed numbers, unless PLIANT_SEED sets another."""

import os


def seed_or(usual: int) -> int:
    """PLIANT_SEED, or the usual seed; printed, so that a failure can be repeated.

    `make test` is the same on every machine and day; `make test-long` draws a PLIANT_SEED.
    """
    number = int(os.environ.get("PLIANT_SEED") or usual)
    print(f"PLIANT_SEED={number}")
    return number

"""Where the chance in tests comes from: fixed numbers, unless PLIANT_SEED says another."""

import os


def seed_or(usual: int) -> int:
    """PLIANT_SEED, or the usual one; printed, so that a failure says how to repeat it.

    `make test` is the same on every machine and day; `make test-long` draws a PLIANT_SEED.
    """
    number = int(os.environ.get("PLIANT_SEED") or usual)
    print(f"PLIANT_SEED={number}")
    return number

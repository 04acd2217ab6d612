"""Prints a digest of every plan of some seeded scenarios: `python -m tests.sched.replay FIRST COUNT`."""

import hashlib
import sys

from tests.sched.scenarios import Seeded, play, scenario


def digest(first: int, count: int) -> str:
    found = hashlib.sha256()
    for seed in range(first, first + count):
        for plan in play(scenario(Seeded(seed))).plans:
            found.update(repr(plan).encode())
    return found.hexdigest()


if __name__ == "__main__":
    print(digest(int(sys.argv[1]), int(sys.argv[2])))

"""What keeps the server and the cluster apart, in one sentence for everybody who asks the server anything."""

import time
from collections.abc import Iterable
from typing import Any

from pliant.engines.kube.watching import Follower
from pliant.engines.kube.work import WorkQueue

PATIENCE = 5.0
"""Seconds of trouble after which it is told: most is over by then."""

MOST = 200  # letters of what the cluster says

CURE = "it is tried again. See `kubectl get --raw /readyz?verbose`"


def trouble_of(followers: Iterable[Follower[Any]], queue: WorkQueue | None) -> str:
    """Empty: there is none."""
    now = time.monotonic()
    for each in followers:
        if (why := each.trouble) and now - each.lost >= PATIENCE:
            return f"Nothing is heard of the cluster ({_plain(why)}): {CURE}"
    if queue is not None and (why := queue.trouble(PATIENCE)):
        return f"The cluster does not do what it is asked for ({_plain(why)}): {CURE}"
    return ""


def _plain(text: str) -> str:
    """As it can stand in a header."""
    return " ".join(text.encode("ascii", "replace").decode().split())[:MOST].rstrip(".")

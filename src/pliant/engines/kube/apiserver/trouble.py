"""One sentence about what is wrong between server and cluster, for all who ask the server."""

import time
from collections.abc import Iterable
from typing import Any

from httpx2 import HTTPError
from lightkube import ApiError

from pliant.engines.kube.apiserver.watching import Follower
from pliant.engines.kube.apiserver.work import WorkQueue

PATIENCE = 5.0
"""Seconds of trouble before it is reported: most trouble ends sooner."""

MOST = 200  # characters of the cluster's message

CURE = "it is tried again. See `kubectl get --raw /readyz?verbose`"

BUSY = (429, 503, 504)
WIDE = ("etcdserver", "webhook")
"""Statuses, and words of an answer 500, that mean trouble of the cluster and not only of one pod."""


def trouble_of(followers: Iterable[Follower[Any]], queue: WorkQueue | None) -> str:
    """Returns the sentence; empty: there is no trouble."""
    now = time.monotonic()
    for each in followers:
        if (why := each.trouble) and now - each.lost >= PATIENCE:
            return f"Nothing is heard of the cluster ({_plain(why)}): {CURE}"
    for error in filter(_wide, queue.errors(PATIENCE) if queue is not None else ()):
        return f"The cluster does not do what it is asked for ({_plain(str(error))}): {CURE}"
    return ""


def _wide(error: Exception) -> bool:
    if isinstance(error, ApiError):
        code, text = error.status.code, error.status.message or ""
        return code in BUSY or (code == 500 and any(word in text for word in WIDE))
    return isinstance(error, HTTPError)


def _plain(text: str) -> str:
    """As one short ASCII line, fit for an HTTP header."""
    return " ".join(text.encode("ascii", "replace").decode().split())[:MOST].rstrip(".")

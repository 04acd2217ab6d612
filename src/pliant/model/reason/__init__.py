"""Why: the closed set of reasons, each with its numbers, made where the decision is made.

GPU amounts are milli-GPUs, instants ms since the epoch. Names are those for people, not ids.
"""

from pliant.model.reason.base import Reason
from pliant.model.reason.change import (
    ByOwner,
    Ended,
    Grown,
    Hastened,
    Incomplete,
    Moved,
    NodeLost,
    Placed,
    Preempted,
    Reclaimed,
    Restarted,
    Shrunk,
    StaleGang,
)
from pliant.model.reason.waiting import (
    BackOff,
    MinRuntime,
    NeverFits,
    NoCapacity,
    NoDomain,
    NoMatchingNode,
    NonPreemptibleOverQuota,
    NotEntitled,
    OverLimit,
    Suspended,
    UnknownProject,
    WaitingForGang,
    WaitingForRelease,
)

__all__ = [
    "BackOff",
    "ByOwner",
    "Ended",
    "Grown",
    "Hastened",
    "Incomplete",
    "MinRuntime",
    "Moved",
    "NeverFits",
    "NoCapacity",
    "NoDomain",
    "NoMatchingNode",
    "NodeLost",
    "NonPreemptibleOverQuota",
    "NotEntitled",
    "OverLimit",
    "Placed",
    "Preempted",
    "Reason",
    "Reclaimed",
    "Restarted",
    "Shrunk",
    "StaleGang",
    "Suspended",
    "UnknownProject",
    "WaitingForGang",
    "WaitingForRelease",
]

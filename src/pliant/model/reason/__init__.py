"""Why: the closed set of reasons and cures, made where the decision is made, and their words.

They carry keys and numbers: GPU amounts are milli-GPUs, instants ms since the epoch. For a reader who may not
know a project, its names and keys are left out first (`seen_by`), then the rest is put into words. No other
code makes a sentence of a reason, and none reads one.
"""

from pliant.model.reason.base import MayRead, Named, Reason
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
    Tainted,
)
from pliant.model.reason.cure import Cure, sentence
from pliant.model.reason.held import (
    HOLDS,
    ChurnBudget,
    EnvironmentLost,
    NotApart,
    Outwaited,
    PreemptionDelay,
    Reserved,
    Unsuited,
)
from pliant.model.reason.start import Estimate
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
    SetAside,
    Suspended,
    UnknownProject,
    WaitingForGang,
    WaitingForRelease,
)

__all__ = [
    "HOLDS",
    "BackOff",
    "ByOwner",
    "ChurnBudget",
    "Cure",
    "Ended",
    "EnvironmentLost",
    "Estimate",
    "Grown",
    "Hastened",
    "Incomplete",
    "MayRead",
    "MinRuntime",
    "Moved",
    "Named",
    "NeverFits",
    "NoCapacity",
    "NoDomain",
    "NoMatchingNode",
    "NodeLost",
    "NonPreemptibleOverQuota",
    "NotApart",
    "NotEntitled",
    "Outwaited",
    "OverLimit",
    "Placed",
    "Preempted",
    "PreemptionDelay",
    "Reason",
    "Reclaimed",
    "Reserved",
    "Restarted",
    "SetAside",
    "Shrunk",
    "StaleGang",
    "Suspended",
    "Tainted",
    "UnknownProject",
    "Unsuited",
    "WaitingForGang",
    "WaitingForRelease",
    "sentence",
]

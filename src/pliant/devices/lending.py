"""Lends the memory of a GPU that no task requested to tasks that may use more than they requested."""

from collections.abc import Collection, Mapping, Sequence

from pliant.devices.config import GRAIN
from pliant.devices.observer import Watched
from pliant.model.workload import AttemptId


def lend(spare: int, wants: Sequence[int]) -> list[int]:
    """What each gets of `spare` bytes: equal parts in whole grains, at most what it wants."""
    found, left = [0] * len(wants), max(0, spare)
    asking = sorted((want, index) for index, want in enumerate(wants) if want > 0)
    for place, (want, index) in enumerate(asking):
        part = left // (len(asking) - place) // GRAIN * GRAIN
        found[index] = min(want, part)
        left -= found[index]
    return found


def shares_of(living: Mapping[AttemptId, Watched], gpus: Collection[str]) -> dict[AttemptId, dict[str, int]]:
    """Limits in bytes by task and GPU: the claim of each, and its part of the unclaimed memory."""
    found: dict[AttemptId, dict[str, int]] = {}
    for uuid in gpus:
        sharers = [key for key in sorted(living) if uuid in living[key].claims]
        claims = [living[key].claims[uuid] for key in sharers]
        most = [_most(living[key], uuid) for key in sharers]
        usable = max((living[key].usable.get(uuid, 0) for key in sharers), default=0)
        wants = [one - claim for one, claim in zip(most, claims, strict=True)]
        for key, claim, part in zip(sharers, claims, lend(usable - sum(claims), wants), strict=True):
            found.setdefault(key, {})[uuid] = claim + part
    return found


def _most(watched: Watched, uuid: str) -> int:
    return next((grant.most for grant in watched.conf.grants if grant.uuid == uuid), 0)

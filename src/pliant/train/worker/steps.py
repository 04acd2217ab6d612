"""One global step: which records this rank computes, in which micro-batches, and what they weigh."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from pliant.train.data.batches import micro_batches, owned, positions, share
from pliant.train.data.order import positions_of

Places = Callable[[int, int, int], list[int]]  # (epoch, start, stop) -> records at these positions


@dataclass(frozen=True, slots=True)
class Part:
    """A micro-batch before it is read."""

    ids: tuple[int, ...]  # its records
    lane: int  # rank, or logical worker; seeds its random numbers
    first: bool  # of its lane
    last: bool  # of its lane
    ghost: bool = False  # this rank has no record: it computes another rank's with weight 0


@dataclass(frozen=True, slots=True)
class Plan:
    """What one rank computes in one step: a pure function of (settings, places, step, rank, size)."""

    step: int  # from 0
    epoch: int
    count: int  # records of the global batch
    ids: tuple[int, ...]  # this rank's
    parts: tuple[Part, ...]


def default_places(settings: dict[str, Any]) -> Places:
    """The order of records if the script gives none."""
    records, seed = settings["records"], settings["seed"]
    if not settings["shuffle"]:
        return lambda _epoch, start, stop: list(range(start, stop))
    return lambda epoch, start, stop: positions_of(records, seed, epoch, start, stop)


def plan_step(settings: dict[str, Any], places: Places, step: int, rank: int, size: int) -> Plan:
    """The plan for `step` (from 0)."""
    cap, logical = settings["max_micro_batch"], settings["logical_workers"]
    epoch, start, stop = positions(step, settings["epoch_records"], settings["global_batch"])
    count = stop - start
    lanes = owned(logical, size, rank) if logical else [rank]
    parts: list[Part] = []
    mine: list[int] = []
    for lane in lanes:
        a, b = share(count, logical or size, lane)
        ids = places(epoch, start + a, start + b)
        mine += ids
        sizes = micro_batches(len(ids), cap)
        at = 0
        for i, n in enumerate(sizes):
            parts.append(Part(tuple(ids[at : at + n]), lane, i == 0, i == len(sizes) - 1))
            at += n
    if not parts and not logical:
        first = places(epoch, start, start + 1)
        parts.append(Part(tuple(first), rank, True, True, ghost=True))
    return Plan(step, epoch, count, tuple(mine), tuple(parts))


def random_seed(seed: int, step: int, lane: int) -> int:
    """The seed of torch's generator for one lane of one step."""
    digest = hashlib.blake2b(f"pliant step 1 {seed} {step} {lane}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def seed_all(seed: int) -> None:
    """torch.manual_seed, but without queueing calls for a CUDA that is not initialized."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


@dataclass(slots=True)
class Batch:
    """A micro-batch, as collated. `x` and `y` are the parts of a pair; iterating gives the parts of a tuple;
    `batch[name]` and `**batch` give those of a dict."""

    value: Any
    ids: tuple[int, ...]  # records in it; empty if its weight is 0
    step: int
    part: Part
    size: int  # number of records read for it

    @property
    def x(self) -> Any:
        """The first part of a pair (or `x` of a dict)."""
        return self.value["x"] if isinstance(self.value, dict) else self.value[0]

    @property
    def y(self) -> Any:
        """The second part of a pair (or `y` of a dict)."""
        return self.value["y"] if isinstance(self.value, dict) else self.value[1]

    def __iter__(self) -> Any:
        return iter(self.value)

    def __getitem__(self, name: Any) -> Any:
        return self.value[name]

    def keys(self) -> Any:
        """Names of the parts of a dict."""
        return self.value.keys()

    def __len__(self) -> int:
        return self.size


@dataclass(slots=True)
class Running:
    """A step that has begun and is not applied yet."""

    plan: Plan
    buffers: Sequence[torch.Tensor]  # as they were before the step
    losses: dict[int, Any] = field(default_factory=dict)  # summed over records, by lane
    counted: int = 0  # records whose gradients are added
    skipped: set[int] = field(default_factory=set)  # records of this rank that cannot be read
    gradients: dict[int, torch.Tensor] = field(default_factory=dict)  # by logical worker
    kept: list[torch.Tensor] | None = None  # buffers after logical worker 0
    backward: bool = False  # True once backward() was called in the current part
    marks: list[Any] = field(default_factory=list)  # gradients as the previous part left them
    applied: bool = False

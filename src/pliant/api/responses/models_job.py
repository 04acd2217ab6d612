"""Shapes of what jobs are told; see pliant.api.responses.models."""

from typing import Literal

from pliant.api.responses.models import Shape


class Allocated(Shape):
    id: str
    attempt: int
    node: str
    gpus: list[str]
    state: Literal["active", "draining", "pending"]
    deadline: int | None


class Allocation(Shape):
    version: int
    epoch: int
    tasks: list[Allocated]
    now: int


class Linked(Shape):
    protocol: int
    now: int
    aheadMs: int


class Reported(Shape):
    nextMs: int

"""Changes to a project or department, and its revision."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pliant.control.errors import BadRequest
from pliant.model.quantity import plain, spell_gpus
from pliant.model.reason.base import amount
from pliant.model.tenancy import UNLIMITED, Queue, Quota


@dataclass(frozen=True, slots=True)
class QueueChange:
    """What to set on a project or department; None: leave it as it is."""

    name: str | None = None
    quotas: tuple[tuple[str, "QuotaChange"], ...] = ()  # per pool name
    limits: Mapping[str, int | None] | None = None  # ms by field of TimeLimits; the others stay
    description: str | None = None
    department: str | None = None  # id or name of the one above; "": a department at the top
    default_pools: tuple[str, ...] | None = None
    interactive_node_types: tuple[str, ...] | None = None
    training_node_types: tuple[str, ...] | None = None
    origin: str | None = None  # the object on a cluster that makes the change; "": it has none any more
    only_if: tuple[str, ...] = ()  # revisions, one of which must be the present one; (): any


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """What to set of a quota; None: leave it as it is. Units as in Quota; UNLIMITED: no bound, no value."""

    gpu: int | None = None
    gpu_limit: int | None = None
    weight: int | None = None
    rank: int | None = None
    cpu: int | None = None
    cpu_limit: int | None = None
    memory: int | None = None
    memory_limit: int | None = None
    reclaim_min_runtime: int | None = None
    preempt_min_runtime: int | None = None

    def over(self, quota: Quota) -> Quota:
        """`quota` with these changes; refused if it contradicts itself."""
        named = {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}
        for name in ("weight", "reclaim_min_runtime", "preempt_min_runtime"):
            if named.get(name) == UNLIMITED:
                named[name] = None
        changed = replace(quota, **named)
        for what, value in (
            ("quota", changed.gpu),
            ("limit", changed.gpu_limit),
            ("weight", changed.weight or 0),
        ):
            if value < 0 and value != UNLIMITED:
                raise BadRequest(
                    f"Invalid GPU {what} {plain(value)}.", "Give 0 or more.", field="resources.gpu"
                )
        if min(changed.reclaim_min_runtime or 0, changed.preempt_min_runtime or 0) < 0:
            raise BadRequest(
                "The minimum runtime cannot be negative.", "Give 0 or more, such as 2m.", field="resources"
            )
        if changed.gpu_limit != UNLIMITED and (changed.gpu == UNLIMITED or changed.gpu_limit < changed.gpu):
            raise BadRequest(
                f"The limit of {spell_gpus(changed.gpu_limit)} is below the quota.",
                "Raise the limit or lower the quota.",
                field="resources.gpu.limit",
            )
        for resource, due, most in (
            ("cpu", changed.cpu, changed.cpu_limit),
            ("memory", changed.memory, changed.memory_limit),
        ):
            if UNLIMITED not in (due, most) and most < due:
                raise BadRequest(
                    f"The limit of {amount(resource, most)} is below the quota of {amount(resource, due)}.",
                    "Raise the limit or lower the quota.",
                    field=f"resources.{resource}.limit",
                )
        return changed


def revision(queue: Queue) -> str:
    """A word that is different whenever a field of the project or department has changed."""
    return hashlib.sha256(repr(queue).encode()).hexdigest()[:20]

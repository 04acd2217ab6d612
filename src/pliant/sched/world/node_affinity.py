"""What tasks ask of a node besides room: labels, taints, and to be kept apart from each other."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pliant.model.affinity import HOST, Affinity, Effect, Operator, Preference, Taint, Term, Toleration
from pliant.model.machine import Node
from pliant.model.workload import TaskGroup, Workload

SHUNNED = 1 << 20
"""The penalty for an untolerated PreferNoSchedule taint: more than all preferences can add."""


class Where(NamedTuple):
    """Which nodes a task may use, and which it prefers. Equal ones share a class of nodes."""

    required: tuple[tuple[Term, ...], ...] = ()
    preferred: tuple[Preference, ...] = ()
    tolerations: tuple[Toleration, ...] = ()


ANYWHERE = Where()


class Apart(NamedTuple):
    """Tasks of one workload, no two of which may sit on nodes of equal value of a label."""

    key: str
    group: str  # empty: all its tasks


@dataclass(frozen=True, slots=True)
class Demand:
    """What the tasks of one group ask of nodes besides room."""

    where: Where = ANYWHERE
    apart: tuple[Apart, ...] = ()


NO_DEMANDS: Mapping[str, Demand] = {}


def demands_of(workload: Workload) -> Mapping[str, Demand]:
    """The demands by group; empty for nearly all workloads, which have none."""
    asks = bool(workload.affinity or workload.tolerations or workload.apart)
    for group in workload.groups:
        asks = asks or bool(group.affinity or group.tolerations or group.apart)
    return {group.name: _demand(workload, group) for group in workload.groups} if asks else NO_DEMANDS


def _demand(workload: Workload, group: TaskGroup) -> Demand:
    asked = (group.affinity if group.affinity is not None else workload.affinity) or Affinity()
    apart = [Apart(workload.apart, "")] if workload.apart else []
    if group.apart and group.apart != workload.apart:
        apart.append(Apart(group.apart, group.name))
    tolerations = (*workload.tolerations, *group.tolerations)
    return Demand(Where(asked.required, asked.preferred, tolerations), tuple(apart))


# ---------------------------------------------------------------- one node
def meets(term: Term, node: Node) -> bool:
    """True if the node's label, or its absence, is what the term asks for."""
    label = node.label(term.key)
    match term.operator:
        case Operator.IN:
            return label is not None and label in term.values
        case Operator.NOT_IN:
            return label is None or label not in term.values
        case Operator.EXISTS:
            return label is not None
        case Operator.DOES_NOT_EXIST:
            return label is None
    have, bound = _number(label), _number(term.values[0] if term.values else None)
    if have is None or bound is None:
        return False
    return have > bound if term.operator is Operator.GT else have < bound


def _number(text: str | None) -> int | None:
    """A whole number as people write it; None for anything else."""
    digits = (text or "").removeprefix("-")
    return int(text) if text is not None and digits.isascii() and digits.isdigit() else None


def alike(where: Where, node: Node) -> bool:
    """True if the labels of the node meet what is required."""
    return not where.required or any(all(meets(term, node) for term in terms) for terms in where.required)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    return (
        (toleration.effect is None or toleration.effect is taint.effect)
        and (toleration.key == taint.key or (not toleration.key and toleration.any_value))
        and (toleration.any_value or toleration.value == taint.value)
    )


def blocking(tolerations: Iterable[Toleration], node: Node) -> Taint | None:
    """The first taint that keeps new work with these tolerations away; None if it may come.

    A toleration for a limited time admits no new work to a NoExecute taint: it would come back each time.
    """
    known = tuple(tolerations)
    for taint in node.taints:
        leaves = taint.effect is Effect.NO_EXECUTE
        stands = any(tolerates(it, taint) and not (leaves and it.lasting is not None) for it in known)
        if taint.effect is not Effect.PREFER_NO_SCHEDULE and not stands:
            return taint
    return None


def text_of(taint: Taint | None) -> str:
    """As people write it; empty without one."""
    return f"{taint.key}{'=' if taint.value else ''}{taint.value}:{taint.effect}" if taint is not None else ""


def suits(where: Where, node: Node) -> bool:
    """True if such a task may be placed there."""
    return alike(where, node) and (not node.taints or blocking(where.tolerations, node) is None)


def liking(where: Where, node: Node) -> int:
    """The preference for a node, higher is better: the weights that it meets, less SHUNNED for each taint."""
    sum_ = sum(it.weight for it in where.preferred if all(meets(term, node) for term in it.terms))
    for taint in node.taints:
        if taint.effect is Effect.PREFER_NO_SCHEDULE:
            sum_ -= SHUNNED * (not any(tolerates(it, taint) for it in where.tolerations))
    return sum_


def puts_off(node: Node) -> bool:
    """True if some taint makes the node one of the last to be tried."""
    return any(taint.effect is Effect.PREFER_NO_SCHEDULE for taint in node.taints)


def driven_out(where: Where, node: Node, now: int) -> tuple[Taint, int] | None:
    """(the NoExecute taint that drives out a running task first, when in ms); None if none does."""
    found: list[tuple[int, Taint]] = []
    for taint in node.taints:
        if taint.effect is not Effect.NO_EXECUTE:
            continue
        standing = [it.lasting for it in where.tolerations if tolerates(it, taint)]
        if not standing:
            found.append((now, taint))
        elif limits := [each for each in standing if each is not None]:
            found.append((taint.since + min(limits), taint))
    return min(((taint, at) for at, taint in found), key=lambda entry: entry[1], default=None)


def place_of(key: str, node: Node) -> str:
    """The value of a label that keeps tasks apart; empty: the node has none, and cannot take them."""
    return node.label(key) or (node.name if key == HOST else "")

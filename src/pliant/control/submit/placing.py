"""Checks where work may run and how close its tasks are placed, and turns both into the model's types."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pliant.control.errors import BadRequest, NotFound
from pliant.control.state.marks import check_key, check_value
from pliant.model.affinity import Affinity, Effect, Operator, Term, Toleration
from pliant.model.topology import Topology, Within
from pliant.model.workload import Workload

MOST_WEIGHT = 100


@dataclass(frozen=True, slots=True)
class Placing:
    """What a user asks for. Empty: anywhere."""

    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    apart: str = ""  # label key: no two of its tasks on nodes of equal value
    topology: str = ""  # name; empty: one that has the levels
    required: str = ""  # level of it, a label key
    preferred: str = ""


def check_placing(ask: Placing) -> Placing:
    """The same, if it is valid. Raises BadRequest."""
    affinity = ask.affinity or Affinity()
    for terms in (*affinity.required, *(preference.terms for preference in affinity.preferred)):
        if not terms:
            raise BadRequest(
                "The node affinity has no expressions.",
                "Add a label to match.",
                field="spec.nodeAffinityRequired",
            )
        for term in terms:
            _check_term(term)
    for preference in affinity.preferred:
        if not 0 < preference.weight <= MOST_WEIGHT:
            raise BadRequest(
                f"Invalid preference weight {preference.weight}.",
                f"Give 1 to {MOST_WEIGHT}.",
                field="spec.nodeAffinityPreferred",
            )
    for toleration in ask.tolerations:
        _check_toleration(toleration)
    for key in (ask.apart, ask.required, ask.preferred):
        if key:
            check_key(key)
    if ask.topology and not (ask.required or ask.preferred):
        raise BadRequest(
            f"Topology {ask.topology} is given without a level.",
            "Add the level at which its tasks must or should be placed together.",
            field="spec.topology",
        )
    return ask


def _check_term(term: Term) -> None:
    check_key(term.key)
    said = f"{term.key} {term.operator.value}"
    match term.operator:
        case Operator.EXISTS | Operator.DOES_NOT_EXIST:
            if term.values:
                raise BadRequest(
                    f"{said} takes no values.",
                    "Remove them, or use In or NotIn.",
                    field="spec.nodeAffinityRequired",
                )
        case Operator.GT | Operator.LT:
            if len(term.values) != 1 or not re.fullmatch(r"-?\d{1,18}", term.values[0]):
                raise BadRequest(
                    f"{said} takes one whole number.",
                    f"Write it as in: {said} 5.",
                    field="spec.nodeAffinityRequired",
                )
        case _:
            if not term.values:
                raise BadRequest(
                    f"{said} needs values.", "Name one or more.", field="spec.nodeAffinityRequired"
                )
            for value in term.values:
                check_value(value)


def _check_toleration(toleration: Toleration) -> None:
    if toleration.key:
        check_key(toleration.key, "taint")
    elif not toleration.any_value:
        raise BadRequest(
            "A toleration without a key needs the operator Exists.",
            "Add a key, or use Exists.",
            field="spec.tolerations",
        )
    if toleration.any_value and toleration.value:
        raise BadRequest(
            f"The toleration of {toleration.key or 'any key'} has a value, but its operator is Exists.",
            "Remove the value, or use Equal.",
            field="spec.tolerations",
        )
    check_value(toleration.value, "taint")
    if toleration.lasting is not None and toleration.effect not in (None, Effect.NO_EXECUTE):
        raise BadRequest(
            "Only a taint with the effect NoExecute can be tolerated for some seconds.",
            "Remove seconds, or use NoExecute.",
            field="spec.tolerations",
        )


def within_of(
    ask: Placing, own: Sequence[str], topologies: Mapping[str, Topology], *, distributed: bool
) -> tuple[Within | None, Topology | None]:
    """(how close its tasks are placed, a topology to create for that). `own`: those of its node pools, in
    order.

    Tasks of a distributed workload in a pool with a topology are placed close together if possible.
    """
    levels = [level for level in (ask.required, ask.preferred) if level]
    if ask.topology:
        known = topologies.get(ask.topology)
        if known is None:
            raise NotFound(f"There is no topology {ask.topology!r}.", "See them with: pliant topology list")
        for level in levels:
            if level not in known.levels:
                raise BadRequest(
                    f"Topology {known.name} has no level {level}.",
                    f"Its levels: {', '.join(known.levels)}.",
                    field="spec.topology",
                )
        return _within(known, ask), None
    if not levels:
        first = next((topologies[name] for name in own if name in topologies), None)
        return (Within(first.name, preferred=first.levels[-1]) if first and distributed else None), None
    for name in (*own, *sorted(topologies)):
        known = topologies.get(name)
        if known is not None and set(levels) <= set(known.levels):
            return _within(known, ask), None
    if len(set(levels)) > 1:
        raise BadRequest(
            f"No topology has the levels {ask.required} and {ask.preferred}.",
            "Make one: pliant topology create NAME --levels WIDEST,...",
            field="spec.topology",
        )
    made = Topology(name_for(levels[0], topologies), (levels[0],))
    return _within(made, ask), made


def named_within(ask: Placing) -> Within | None:
    """How close the tasks of a group are placed; check_withins() checks that there is such a level."""
    if not (ask.required or ask.preferred):
        return None
    if not ask.topology:
        raise BadRequest(
            f"Topology level {ask.required or ask.preferred} needs the name of its topology.",
            "Set topology.name, or use --topology NAME.",
            field="spec.topology.name",
        )
    return Within(ask.topology, ask.required, ask.preferred)


def check_withins(withins: Iterable[Within], topologies: Mapping[str, Topology]) -> None:
    """Raise NotFound or BadRequest if one of them names a topology or level that does not exist."""
    for within in withins:
        ask = Placing(topology=within.topology, required=within.required, preferred=within.preferred)
        within_of(ask, (), topologies, distributed=False)


def name_for(level: str, topologies: Mapping[str, Topology]) -> str:
    """A free name for a topology of that one level."""
    base = f"by-{re.sub('[^a-z0-9]+', '-', level.lower()).strip('-')}"[:55].strip("-")
    numbered = (f"{base}-{number}" for number in range(2, len(topologies) + 3))
    return next(name for name in (base, *numbered) if name not in topologies)


def _within(topology: Topology, ask: Placing) -> Within:
    order = topology.levels.index
    if ask.required and ask.preferred and order(ask.required) > order(ask.preferred):
        raise BadRequest(
            f"Level {ask.required} of topology {topology.name} is narrower than {ask.preferred}: the "
            "first is required, so the second has no effect.",
            "Prefer a level that is narrower than the required one.",
            field="spec.topology",
        )
    return Within(topology.name, ask.required, ask.preferred)


def check_apart(workload: Workload, within: Within, topology: Topology) -> None:
    """Raise BadRequest if its tasks would have to be both together and apart."""
    tasks = sum(group.min for group in workload.groups)
    if not within.required or tasks < 2:
        return
    if workload.apart in topology.levels[: topology.levels.index(within.required) + 1]:
        raise BadRequest(
            f"All {tasks} tasks must lie in one domain of {within.required},"
            f" and no two of them on nodes of equal {workload.apart}.",
            "Leave out one of the two, or keep them apart by a narrower label.",
            field="spec.topology",
        )

"""Where work may run, between the wire's words and ours: node affinity, tolerations, how its tasks lie."""

from collections.abc import Sequence
from typing import Any

from pliant.api.requests.models import Expression, Spec
from pliant.control.errors import BadRequest
from pliant.control.submit.placing import Placing
from pliant.model.affinity import HOST, Affinity, Effect, Operator, Preference, Term, Toleration
from pliant.model.workload import Workload

Item = dict[str, Any]


def placing_of(spec: Spec) -> Placing:
    """What the body asks for."""
    alternatives = spec.nodeAffinityRequired.nodeSelectorTerms if spec.nodeAffinityRequired else None
    required = [_terms(entry.matchExpressions) for entry in alternatives or ()]
    preferred = [
        Preference(entry.weight, _terms(entry.matchExpressions)) for entry in spec.nodeAffinityPreferred or ()
    ]
    affinity = Affinity(tuple(required), tuple(preferred)) if required or preferred else None
    near, asked = spec.podAffinity, spec.topology
    if near is not None and near.key and asked is not None:
        raise BadRequest(
            "spec.podAffinity and spec.topology both say how close its tasks lie.", "Choose one of them."
        )
    levels = {near.type or "Preferred": near.key or ""} if near is not None else {}
    return Placing(
        affinity,
        tuple(_toleration(entry) for entry in spec.tolerations or () if not entry.exclude),
        _apart(spec),
        topology=asked.name or "" if asked is not None else "",
        required=levels.get("Required") or (asked.requiredPlacement or "" if asked is not None else ""),
        preferred=levels.get("Preferred") or (asked.preferredPlacement or "" if asked is not None else ""),
    )


def _terms(given: Sequence[Expression] | None) -> tuple[Term, ...]:
    return tuple(
        Term(entry.key, Operator(entry.operator), tuple(entry.values or ())) for entry in given or ()
    )


def _toleration(entry: Any) -> Toleration:
    effect = None if entry.effect in (None, "Any") else Effect(entry.effect)
    lasting = None if entry.seconds is None else entry.seconds * 1000
    return Toleration(entry.key or "", entry.value or "", entry.operator == "Exists", effect, lasting)


def _apart(spec: Spec) -> str:
    asked = spec.podAntiAffinity
    if asked is None:
        return ""
    if asked.type == "Preferred":
        raise BadRequest(
            "spec.podAntiAffinity cannot be Preferred.",
            "Say Required, or leave podAntiAffinity out.",
        )
    return asked.key or HOST


def told(workload: Workload) -> Item:
    """What was asked for, as it is told again."""
    affinity, within = workload.affinity or Affinity(), workload.within
    required = [{"matchExpressions": [_expression(term) for term in terms]} for terms in affinity.required]
    return {
        "nodeAffinityRequired": {"nodeSelectorTerms": required} if required else None,
        "nodeAffinityPreferred": [
            {"weight": entry.weight, "matchExpressions": [_expression(term) for term in entry.terms]}
            for entry in affinity.preferred
        ],
        "tolerations": [_tolerated(entry) for entry in workload.tolerations],
        "podAntiAffinity": {"type": "Required", "key": workload.apart} if workload.apart else None,
        "topology": None
        if within is None
        else {
            "name": within.topology,
            "requiredPlacement": within.required or None,
            "preferredPlacement": within.preferred or None,
        },
        "staleGraceSeconds": _seconds(workload.stale_grace),
        "preemptionDelaySeconds": _seconds(workload.preemption_delay),
        "maxRuntimeSeconds": _seconds(workload.max_runtime),
    }


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else -1 if ms < 0 else ms / 1000


def _expression(term: Term) -> Item:
    return {"key": term.key, "operator": term.operator.value, "values": list(term.values)}


def _tolerated(entry: Toleration) -> Item:
    return {
        "operator": "Exists" if entry.any_value else "Equal",
        "key": entry.key or None,
        "value": entry.value or None,
        "effect": entry.effect.value if entry.effect is not None else "Any",
        "seconds": None if entry.lasting is None else entry.lasting // 1000,
    }

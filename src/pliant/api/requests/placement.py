"""Where tasks may run, between wire and model: node affinity, tolerations, topology, anti-affinity."""

from typing import Any

from pliant.control.errors import BadRequest
from pliant.control.submit.placing import Placing
from pliant.model.affinity import HOST, Affinity, Effect, Operator, Preference, Term, Toleration
from pliant.model.workload import Workload
from pliant.wire import placing
from pliant.wire import submission as wire

Item = dict[str, Any]


def placing_of(spec: wire.Spec) -> Placing:
    """The placement that a spec asks for. Raises BadRequest."""
    alternatives = spec.get("nodeAffinityRequired", {}).get("nodeSelectorTerms", ())
    required = [_terms(entry) for entry in alternatives]
    preferred = [
        Preference(entry.get("weight", 1), _terms(entry)) for entry in spec.get("nodeAffinityPreferred", ())
    ]
    affinity = Affinity(tuple(required), tuple(preferred)) if required or preferred else None
    near, asked = spec.get("podAffinity", {}), spec.get("topology", {})
    if near.get("key") and "topology" in spec:
        raise BadRequest(
            "spec.podAffinity and spec.topology exclude each other.",
            "Choose one of them.",
            field="spec.topology",
        )
    levels = {near.get("type", "Preferred"): near.get("key", "")}
    return Placing(
        affinity,
        tuple(_toleration(entry) for entry in spec.get("tolerations", ()) if not entry.get("exclude")),
        _apart(spec.get("podAntiAffinity")),
        topology=asked.get("name", ""),
        required=levels.get("Required") or asked.get("requiredPlacement", ""),
        preferred=levels.get("Preferred") or asked.get("preferredPlacement", ""),
    )


def _terms(given: placing.Alternative | placing.Preferred) -> tuple[Term, ...]:
    return tuple(
        Term(entry["key"], Operator(entry["operator"]), tuple(entry.get("values", ())))
        for entry in given.get("matchExpressions", ())
    )


def _toleration(entry: placing.Toleration) -> Toleration:
    effect, seconds = entry.get("effect", "Any"), entry.get("seconds")
    return Toleration(
        entry.get("key", ""),
        entry.get("value", ""),
        entry.get("operator") == "Exists",
        None if effect == "Any" else Effect(effect),
        None if seconds is None else seconds * 1000,
    )


def _apart(asked: placing.PodAntiAffinity | None) -> str:
    if asked is None:
        return ""
    if asked.get("type") == "Preferred":
        raise BadRequest(
            "spec.podAntiAffinity cannot be Preferred.",
            "Use Required, or omit podAntiAffinity.",
            field="spec.podAntiAffinity.type",
        )
    return asked.get("key") or HOST


def placing_told(workload: Workload) -> Item:
    """The placement, in the form in which it can be sent again."""
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
    }


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

"""Labels and taints that people set on nodes: they override what engines report, also in later reports."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pliant.control.errors import BadRequest
from pliant.model.affinity import HOST, Effect, Taint
from pliant.model.machine import Node

PREFIX = "node/"
"""Prefix of the keys under which the store keeps marks; the node's name follows."""

_PART = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY = re.compile(rf"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?{_PART}")
_VALUE = re.compile(rf"({_PART})?")


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks of one node. Every node also has the label HOST, which workloads and topologies may name."""

    labels: tuple[tuple[str, str | None], ...] = ()  # None: removed, whatever the engine reports
    taints: tuple[Taint, ...] = ()

    def over(self, node: Node) -> Node:
        """The node as an engine reports it, with these on top."""
        labels: dict[str, str | None] = {HOST: node.name, **dict(node.labels), **dict(self.labels)}
        own = {(taint.key, taint.effect): taint for taint in (*node.taints, *self.taints)}
        return replace(
            node,
            labels=tuple(sorted((key, value) for key, value in labels.items() if value is not None)),
            taints=tuple(own[key] for key in sorted(own)),
        )

    def text(self) -> str:
        """The marks as the store keeps them, in JSON."""
        taints = [[taint.key, taint.value, taint.effect.value, taint.since] for taint in self.taints]
        return json.dumps({"labels": dict(self.labels), "taints": taints}, sort_keys=True)


def parse(text: str) -> Marks:
    """The marks that `Marks.text` wrote."""
    said = json.loads(text)
    taints = tuple(Taint(key, value, Effect(effect), since) for key, value, effect, since in said["taints"])
    return Marks(tuple(sorted(said["labels"].items())), taints)


def restored(settings: Mapping[str, str]) -> dict[str, Marks]:
    """The marks by node name, from all settings of the store."""
    return {key.removeprefix(PREFIX): parse(text) for key, text in settings.items() if key.startswith(PREFIX)}


def check_key(key: str, what: str = "label", field: str = "") -> str:
    """The key, if Kubernetes accepts it for a label or taint. Raises BadRequest."""
    if len(key) > 253 or not _KEY.fullmatch(key):
        raise BadRequest(
            f"{key[:60]!r} cannot be the key of a {what}.",
            "Use letters, digits, '-', '_' and '.', 63 at most; before a '/' the name of a domain.",
            field=field,
        )
    return key


def check_value(value: str, what: str = "label", field: str = "") -> str:
    if not _VALUE.fullmatch(value):
        raise BadRequest(
            f"{value[:60]!r} cannot be the value of a {what}.",
            "Use letters, digits, '-', '_' and '.', 63 at most; first and last a letter or digit.",
            field=field,
        )
    return value

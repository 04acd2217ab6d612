"""Options of all submit commands about placement; several of them can set one field."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from pliant.cli.submit.options import decorated

if TYPE_CHECKING:
    from pliant.wire.submission import Spec

_Function = TypeVar("_Function", bound=Callable[..., Any])

HOST = "kubernetes.io/hostname"
_SET = re.compile(r"(\S+)\s+(in|notin)\s*\((.*)\)")
_COMPARED = re.compile(r"([^=!<>\s]+)\s*(==|=|!=|>|<)\s*(.*)")
_OPERATORS = {"=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt", "in": "In", "notin": "NotIn"}
_TOLERATION = ("operator", "key", "value", "effect", "seconds")


def options(function: _Function) -> _Function:
    return decorated(
        function,
        [
            click.option(
                "--node-affinity",
                multiple=True,
                metavar="EXPR",
                help="Only nodes with these labels, e.g. 'gpu in (h100,a100),!old' (repeatable: all must "
                "match).",
            ),
            click.option(
                "--prefer-node",
                multiple=True,
                metavar="[WEIGHT:]EXPR",
                help="Prefer nodes with these labels; WEIGHT is 1 to 100.",
            ),
            click.option(
                "--exclude-node", multiple=True, metavar="NAME", help="Exclude this node (repeatable)."
            ),
            click.option(
                "--toleration",
                multiple=True,
                metavar="SPEC",
                help="operator=Equal|Exists,key=K,value=V,effect=E,seconds=N (repeatable).",
            ),
            click.option(
                "--anti-affinity",
                metavar="LABEL",
                flag_value=HOST,
                is_flag=False,
                help="Place at most one task per value of this node label (default: one per node).",
            ),
            click.option("--topology", metavar="NAME", help="Topology of the levels given below."),
            click.option(
                "--required-topology",
                "--required-pod-topology-key",
                metavar="LEVEL",
                help="Place all tasks in one domain of this level.",
            ),
            click.option(
                "--preferred-topology",
                "--preferred-pod-topology-key",
                metavar="LEVEL",
                help="Prefer one domain of this level.",
            ),
        ],
    )


def spec(given: Mapping[str, Any]) -> Spec:
    """The fields that those options set. Raises UsageError."""
    made: dict[str, Any] = {}
    terms = [term for text in given["node_affinity"] for term in expressions(text, "--node-affinity")]
    if given["exclude_node"]:
        names = [name for text in given["exclude_node"] for name in text.replace(",", " ").split()]
        terms.append({"key": HOST, "operator": "NotIn", "values": names})
    if terms:
        made["nodeAffinityRequired"] = {"nodeSelectorTerms": [{"matchExpressions": terms}]}
    if given["prefer_node"]:
        made["nodeAffinityPreferred"] = [_preference(text) for text in given["prefer_node"]]
    if given["toleration"]:
        made["tolerations"] = [toleration(text) for text in given["toleration"]]
    if given["anti_affinity"] is not None:
        made["podAntiAffinity"] = {"type": "Required", "key": given["anti_affinity"]}
    near = {
        "name": given["topology"],
        "requiredPlacement": given["required_topology"],
        "preferredPlacement": given["preferred_topology"],
    }
    if said := {field: value for field, value in near.items() if value is not None}:
        made["topology"] = said
    return cast("Spec", made)


def expressions(text: str, flag: str) -> list[dict[str, Any]]:
    """'gpu in (h100,a100),rack=r1,!old,memory>40' in the form of the API. Raises UsageError."""
    parts = [part.strip() for part in re.split(r",(?![^(]*\))", text)]
    return [_expression(part, text, flag) for part in parts]


def _expression(part: str, text: str, flag: str) -> dict[str, Any]:
    if match := _SET.fullmatch(part):
        values = [value for value in match[3].replace(",", " ").split() if value]
        return {"key": match[1], "operator": _OPERATORS[match[2]], "values": values}
    if match := _COMPARED.fullmatch(part):
        return {"key": match[1], "operator": _OPERATORS[match[2]], "values": [match[3]]}
    key = part.removeprefix("!").strip()
    if not key or re.search(r"[\s=<>()!]", key):
        raise click.UsageError(
            f"{flag} {text}: {part!r} is not valid: use KEY=VALUE, KEY!=VALUE, KEY in (A,B), KEY notin "
            "(A,B), KEY>N, KEY<N, KEY, !KEY."
        )
    return {"key": key, "operator": "DoesNotExist" if part.startswith("!") else "Exists", "values": []}


def _preference(text: str) -> dict[str, Any]:
    weight, colon, rest = text.partition(":")
    if not (colon and weight.strip().isdecimal()):
        weight, rest = "1", text
    return {"weight": int(weight), "matchExpressions": expressions(rest, "--prefer-node")}


def toleration(text: str) -> dict[str, Any]:
    """'operator=Exists,key=spot,effect=NoSchedule' in the form of the API. Raises UsageError."""
    fields: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if not equals or name not in _TOLERATION or name in fields:
            said = ", ".join(_TOLERATION)
            raise click.UsageError(
                f"--toleration {text}: {part.strip()!r} is invalid; use the fields {said}."
            )
        fields[name] = value
    fields.setdefault("operator", "Equal" if "value" in fields else "Exists")
    if "seconds" in fields:
        if not fields["seconds"].isdecimal():
            raise click.UsageError(f"--toleration {text}: seconds is a whole number.")
        fields["seconds"] = int(fields["seconds"])
    return fields

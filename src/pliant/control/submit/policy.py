"""Policies about submissions: the values that they set, the rules that they impose, and their origin."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pliant.control.errors import BadRequest
from pliant.model.asset import Asset, AssetKind, Scope
from pliant.model.quantity import parse_bytes

Path = tuple[str, ...]
"""The path of a field below `spec`."""

WORDS = frozenset(
    {"canEdit", "required", "blocked", "min", "max", "step", "options", "canAdd", "locked", "defaultFrom"}
)
FARTHEST = frozenset({"compute", "security"})
"""For rules about these the widest scope wins; for all other rules and for defaults, the nearest."""


@dataclass(frozen=True, slots=True)
class Said:
    """A value or a rule, and the policy that it comes from."""

    value: Any
    policy: Asset


@dataclass(frozen=True, slots=True)
class Effective:
    """All policies that concern one kind of workloads of one project, merged."""

    defaults: Mapping[Path, Said]
    rules: Mapping[Path, Said]


@dataclass(frozen=True, slots=True)
class Issue:
    """One field that a policy does not allow."""

    field: str
    details: str
    rule: str
    policy: Asset


class Incompliant(BadRequest):
    """Policies do not allow a submission."""

    code = "policy"

    def __init__(self, issues: Sequence[Issue]) -> None:
        hint = "See the policy with: GET /api/v1/policies/effective"
        super().__init__(f"{issues[0].details}", hint, field=issues[0].field)
        self.issues = tuple(issues)


def flat(tree: Mapping[str, Any], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Each value of a tree with its path; a list is a value."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from flat(value, (*path, name))
        else:
            yield (*path, name), value


def rules_of(tree: Mapping[str, Any], path: Path = ()) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Each rule of a tree with the path of its field. Raises BadRequest."""
    for name, value in tree.items():
        here = (*path, name)
        at = "rules." + ".".join(here)
        if not isinstance(value, Mapping) or not value:
            raise BadRequest(f"{at} is not a rule.", f"Use {', '.join(sorted(WORDS))}.", field=at)
        if not value.keys() & WORDS:
            yield from rules_of(value, here)
            continue
        if wrong := next((word for word in value if word not in WORDS), None):
            raise BadRequest(
                f"{at}: unknown rule {wrong[:40]!r}.", f"Use {', '.join(sorted(WORDS))}.", field=at
            )
        for word, said in value.items():
            _check_rule(at, word, said)
        yield here, value


def _check_rule(at: str, word: str, said: Any) -> None:
    good = {
        "canEdit": isinstance(said, bool),
        "required": isinstance(said, bool),
        "blocked": isinstance(said, bool),
        "canAdd": isinstance(said, bool),
        "min": _amount(said) is not None,
        "max": _amount(said) is not None,
        "step": (_amount(said) or 0) > 0,
        "options": isinstance(said, list) and bool(said) and all(map(_is_option, said)),
        "locked": isinstance(said, list) and all(isinstance(name, str) for name in said),
        "defaultFrom": isinstance(said, Mapping)
        and set(said) <= {"field", "factor"}
        and isinstance(said.get("field"), str)
        and isinstance(said.get("factor", 1), int | float),
    }[word]
    if not good:
        raise BadRequest(f"{at}.{word} cannot be {json.dumps(said)[:60]}.", field=f"{at}.{word}")


def _is_option(said: Any) -> bool:
    """True for a plain value, or an object that has it as `value`."""
    return not isinstance(said, Mapping) or "value" in said


def effective(assets: Iterable[Asset], workloads: str, project: str, departments: Sequence[str]) -> Effective:
    """The merged policies for these workloads. `departments`: ids above the project, nearest first."""
    order = {(Scope.TENANT, ""): 0, (Scope.PROJECT, project): len(departments) + 1}
    order |= {(Scope.DEPARTMENT, identity): len(departments) - at for at, identity in enumerate(departments)}
    chain = sorted(
        (
            row
            for row in assets
            if row.kind is AssetKind.POLICY
            and row.workloads == workloads
            and (row.scope, row.scope_id) in order
        ),
        key=lambda row: order[row.scope, row.scope_id],
    )
    defaults: dict[Path, Said] = {}
    rules: dict[Path, Said] = {}
    for row in chain:
        body = json.loads(row.body)
        for path, value in flat(body.get("defaults", {})):
            defaults[path] = Said(value, row)
        for path, rule in rules_of(body.get("rules", {})):
            if path not in rules or path[0] not in FARTHEST:
                rules[path] = Said(rule, row)
    return Effective(defaults, rules)


def filled(spec: Mapping[str, Any], policy: Effective) -> dict[str, Any]:
    """The spec with the defaults for the fields that it does not set."""
    made = _copy(spec)
    for path, said in policy.defaults.items():
        if _get(made, path) is None:
            _set(made, path, said.value)
    for path, said in policy.rules.items():
        source = said.value.get("defaultFrom")
        if source is not None and _get(made, path) is None:
            base = _get(made, tuple(source["field"].split(".")))
            if isinstance(base, int | float):
                amount = base * source.get("factor", 1)
                _set(made, path, int(amount) if float(amount).is_integer() else amount)
    return made


def issues(sent: Mapping[str, Any], whole: Mapping[str, Any], policy: Effective, at: str) -> list[Issue]:
    """What the rules do not allow. `sent` has what the owner set, `whole` has the defaults as well."""
    found = []
    for path, said in policy.rules.items():
        field = ".".join((at, *path))
        given, value = _get(sent, path), _get(whole, path)
        default = policy.defaults.get(path)
        own = given is not None and (default is None or given != default.value)
        for rule, text in _broken(field, said.value, own, given, value):
            found.append(Issue(field, text, rule, said.policy))
    return found


def _broken(
    field: str, rule: Mapping[str, Any], own: bool, given: Any, value: Any
) -> Iterator[tuple[str, str]]:
    """(rule, sentence) for each rule that is broken."""
    if rule.get("blocked") and value is not None:
        yield "blocked", f"{field} must not be set."
        return
    if rule.get("required") and value is None:
        yield "required", f"{field} must be set."
    if rule.get("canEdit") is False and own:
        yield "canEdit", f"{field} must not be changed."
    if "options" in rule and value is not None:
        allowed = [it["value"] if isinstance(it, Mapping) else it for it in rule["options"]]
        if value not in allowed:
            yield "options", f"{field} must be one of {', '.join(map(str, allowed))}, not {str(value)[:60]}."
    if isinstance(given, list):
        names = {str(entry.get("name")) for entry in given if isinstance(entry, Mapping)}
        if rule.get("canAdd") is False and own:
            yield "canAdd", f"Nothing can be added to {field}."
        if locked := sorted(names & set(rule.get("locked", ()))):
            yield "locked", f"{field}: {', '.join(locked)} must not be changed."
    amount = _amount(value)
    if amount is None:
        return
    least, most, step = (_amount(rule.get(word)) for word in ("min", "max", "step"))
    if least is not None and amount < least:
        yield "min", f"{field} must be at least {rule['min']}, not {value}."
    if most is not None and amount > most:
        yield "max", f"{field} must be at most {rule['max']}, not {value}."
    if step and round((amount - (least or 0)) / step, 6) % 1:
        yield (
            "step",
            f"{field} must be {rule.get('min', 0)} plus a multiple of {rule['step']}, not {value}.",
        )


def _amount(value: Any) -> float | None:
    """The amount of a number or of a quantity such as 5G; None for anything else."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return value
    try:
        return parse_bytes(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _copy(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _copy(value) if isinstance(value, Mapping) else value for name, value in spec.items()}


def _get(spec: Mapping[str, Any], path: Path) -> Any:
    value: Any = spec
    for name in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def _set(spec: dict[str, Any], path: Path, value: Any) -> None:
    for name in path[:-1]:
        inner = spec.get(name)
        if not isinstance(inner, dict):
            inner = spec[name] = {}
        spec = inner
    spec[path[-1]] = value

"""Every field of a submission has its place, and comes back as it was sent."""

from collections.abc import Sequence
from dataclasses import fields as attributes
from typing import Annotated, Any, get_args, get_origin, get_type_hints, is_typeddict

import pytest

from pliant.api.requests.fields import OF_LAUNCH, OF_WORKLOAD, Field
from pliant.model.workload import Launch, Workload
from pliant.wire.limits import Range, Unused
from pliant.wire.submission import Spec
from tests.api.conftest import Api
from tests.api.stage import IMAGE, until

SHAPED = {
    "image": "",
    "command": "its words are in commandArgv",
    "commandArgv": "",
    "args": "its words are in argsArgv",
    "argsArgv": "",
    "environmentVariables": "names in the row, values with the engine",
    "capturedEnvironment": "the same",
    "compute": "amounts, which become whole numbers",
    "beginAt": "an instant",
    "dependencies": "names, which become ids",
    "dependencyAny": "of those",
    "keepPending": "of those",
    "array": "several workloads",
    "elastic": "groups",
    "completions": "groups",
    "parallelism": "groups",
    "nodePools": "by id or name",
    "priorityClass": "its value",
    "preemptibility": "follows from the priority where it is not said",
    "backoffLimit": "depends on the kind where it is not said",
    "category": "depends on the kind where it is not said",
    "restartPolicy": "depends on the kind where it is not said",
    "ports": "",
    "exposedUrls": "",
    "nodeAffinityRequired": "placement",
    "nodeAffinityPreferred": "placement",
    "tolerations": "placement",
    "podAffinity": "placement",
    "podAntiAffinity": "placement",
    "topology": "placement",
    "storage": "volumes of the launch",
}
"""Fields that parse_submission turns into something else, and why, where that is not plain."""


def test_every_field_has_its_place_and_only_one() -> None:
    kept = [field.key for field in (*OF_LAUNCH, *OF_WORKLOAD)]
    hints = get_type_hints(Spec, include_extras=True)
    assert sorted([*kept, *SHAPED]) == sorted(key for key, hint in hints.items() if hint != Unused)


@pytest.mark.parametrize(("row", "kept"), [(Launch, OF_LAUNCH), (Workload, OF_WORKLOAD)])
def test_the_row_has_the_attribute(row: type, kept: Sequence[Field]) -> None:
    assert {field.attribute for field in kept} <= {each.name for each in attributes(row)}


def value(hint: Any) -> Any:
    """One that may be sent."""
    if get_origin(hint) is Annotated:
        bounds = [bound for bound in hint.__metadata__ if isinstance(bound, Range)]
        return 61 if bounds else value(get_args(hint)[0])
    if is_typeddict(hint):
        return {name: value(each) for name, each in get_type_hints(hint, include_extras=True).items()}
    return {str: "x1", bool: True, int: 7}.get(hint, [{"name": "k", "value": "v"}])


@pytest.mark.parametrize("field", [*OF_LAUNCH, *OF_WORKLOAD], ids=lambda field: field.key)
def test_it_comes_back_as_it_was_sent(quiet: Api, field: Field) -> None:
    sent = value(get_type_hints(Spec, include_extras=True)[field.key])
    spec = {"image": IMAGE, "stdin": True, field.key: sent}
    body = {"name": f"f-{field.key.lower()}", "projectName": "default", "spec": spec}
    made = quiet.call("POST", "/api/v1/workloads/trainings", 202, json=body)
    assert made["spec"][field.key] == sent
    identity = made["workloadId"]
    assert quiet.get(f"/api/v1/workloads/trainings/{identity}")["spec"][field.key] == sent
    quiet.call("POST", f"/api/v1/workloads/{identity}/cancel?now=true")  # a grace period may be a minute
    quiet.call("DELETE", f"/api/v1/workloads/{identity}", 202)
    until(lambda: quiet.get("/api/v1/workloads/count") == {"count": 0})

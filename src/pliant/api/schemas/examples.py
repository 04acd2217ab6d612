"""Adds an example to each body, answer and parameter, made from its schema and from fitting values."""

from collections.abc import Iterator, Mapping
from typing import Any

Schema = dict[str, Any]

MOMENT = "2026-11-26T12:00:00Z"
WORDS: Mapping[str, Any] = {
    "name": "team-a",
    "id": "4500003",
    "image": "ubuntu:24.04",
    "command": "python train.py",
    "email": "anna",
    "username": "anna",
    "user": "anna",
    "owner": "anna",
    "createdBy": "anna",
    "submittedBy": "anna",
    "projectName": "team-a",
    "projectId": "4500003",
    "departmentName": "default",
    "node": "gpu-box",
    "nodePoolName": "default",
    "nodePools": "default",
    "path": "/data",
    "mountPath": "/data",
    "repository": "https://git.example.org/team/code.git",
    "url": "https://git.example.org/team/code.git",
    "server": "nfs.example.org",
    "smtpHost": "mail.example.org",
    "host": "mail.example.org",
    "from": "pliant@example.org",
    "sender": "pliant@example.org",
    "address": "anna@example.org",
    "channels": "anna@example.org",
    "password": "correct horse battery",
    "newPassword": "correct horse battery",
    "currentPassword": "the one before",
    "labelKey": "pool",
    "labelValue": "fast",
    "levels": "rack",
    "start": "2026-11-01T00:00:00Z",
    "end": "2026-11-26T00:00:00Z",
    "rank": "High",
    "minGuaranteedRuntime": "30m",
    "subjectId": "anna",
    "scopeId": "4500003",
    "roleName": "AI practitioner",
    "gpuMemoryRequest": "8G",
    "cpuMemoryRequest": "4G",
    "state": "training",
    "workloadId": "7e0cbb4c-5c43-4a55-9d0c-6ac4b0f3a0a1",
    "uuid": "7e0cbb4c-5c43-4a55-9d0c-6ac4b0f3a0a1",
    "version": "0.1.0",
}
"""Values of fields by name. Of other texts, one whose name ends with At is a time, the rest are `text`."""

_SUBMISSION = {
    "name": "a1",
    "projectName": "team-a",
    "spec": {"image": "ubuntu:24.04", "command": "python train.py", "compute": {"gpuDevicesRequest": 1}},
}
_KEPT = {"name": "two-gpus", "scope": "project", "projectId": "4500003"}
_POLICY = {
    "meta": {"scope": "project", "projectId": "4500003"},
    "policy": {"rules": {"compute": {"gpuDevicesRequest": {"max": 2}}}},
}
REQUESTS: Mapping[str, Any] = {
    "Submission": _SUBMISSION,
    "Inference": {**_SUBMISSION, "spec": {**_SUBMISSION["spec"], "servingPort": {"container": 8000}}},  # type: ignore[dict-item]
    "Distributed": {
        **_SUBMISSION,
        "spec": {**_SUBMISSION["spec"], "numWorkers": 2, "distributedFramework": "PyTorch"},  # type: ignore[dict-item]
    },
    "UnitRequest": {"name": "team-a", "resources": [{"gpu": {"deserved": 2, "limit": 4}, "rank": "High"}]},
    "UnitChange": {
        "description": "GPUs of team A",
        "resources": [{"gpu": {"deserved": 2, "limit": 4}, "rank": "High"}],
    },
    "QuotaSheet": {"entries": [{"id": "team-a", "resources": [{"gpu": {"deserved": 1}}]}]},
    "QuotaRequest": {"gpu": {"deserved": 2, "limit": 4}},
    "BookingRequest": {
        "name": "demo",
        "projectName": "team-a",
        "gpus": 4,
        "start": "2036-12-01T14:00:00Z",
        "end": "2036-12-01T16:00:00Z",
    },
    "PoolRequest": {"name": "fast", "labelKey": "pool", "labelValue": "fast"},
    "PoolChange": {
        "labelKey": "pool",
        "labelValue": "fast",
        "placementStrategy": {"gpu": "binpack"},
    },
    "TopologyChange": {"levels": ["zone", "rack"]},
    "TopologyRequest": {"name": "racks", "levels": ["zone", "rack"]},
    "Fitting": {"cpuCoreRequest": 2, "cpuMemoryRequest": "4G"},
    "NodeRequest": {"labels": {"pool": "fast"}},
    "EnvironmentRequest": {"meta": _KEPT, "spec": {"image": "ubuntu:24.04"}},
    "ComputeRequest": {"meta": _KEPT, "spec": {"gpuDevicesRequest": 2}},
    "TemplateRequest": {"meta": _KEPT, "spec": {"image": "ubuntu:24.04"}},
    "EnvironmentChange": {"spec": {"image": "ubuntu:26.04"}},
    "ComputeChange": {"spec": {"gpuDevicesRequest": 1}},
    "TemplateChange": {"spec": {"image": "ubuntu:26.04"}},
    "DistributedTemplateRequest": {"meta": _KEPT, "spec": {"image": "ubuntu:24.04", "numWorkers": 2}},
    "DistributedTemplateChange": {"spec": {"numWorkers": 4}},
    "InferenceTemplateRequest": {"meta": _KEPT, "spec": {"image": "ubuntu:24.04"}},
    "InferenceTemplateChange": {"spec": {"image": "ubuntu:26.04"}},
    "PolicyRequest": _POLICY,
    "DistributedPolicyRequest": _POLICY,
    "InferencePolicyRequest": _POLICY,
    "ReportRequest": {"name": "november", "start": "2026-11-01T00:00:00Z", "end": "2026-11-26T00:00:00Z"},
    "RuleRequest": {"roleId": 5, "subjectId": "anna", "subjectType": "user", "scopeType": "tenant"},
    "RoleRequest": {
        "name": "Submitter",
        "description": "Submits work and sees nodes.",
        "permissionSets": [{"id": "workloadsEditAccess"}, {"id": "nodesReadAccess"}],
    },
    "RoleChange": {"description": "Sees nodes.", "permissionSets": [{"id": "nodesReadAccess"}]},
    "NotificationRequest": {"kind": "mail", "address": "anna@example.org"},
    "Command": {"command": ["nvidia-smi"]},
    "Connect": {"port": 8888},
    "PriorityClassRequest": {"name": "urgent", "value": 90},
    "Supposition": {"changes": [{"kind": "drain", "node": "gpu-box"}]},
    "DrainSome": {"nodes": ["gpu-box"]},
    "LimitRequest": {"user": "anna", "gpus": 4, "pending": 100},
    "SecuritySettingChange": {"value": "8h"},
    "InferenceChange": {"spec": {"autoscaling": {"minReplicas": 2}}},
    "Report": {"state": "training", "step": 1200, "loss": 0.42},
}
"""Bodies whose fields depend on each other in ways that a schema does not say; by the name of the schema."""

PARAMETERS: Mapping[str, Any] = {"search": "a1", "number": 1}


def illustrate(described: Schema) -> None:
    """Add `example` to every schema of a body or an answer, and to every parameter."""
    schemas = described["components"]["schemas"]
    for path, item in described["paths"].items():
        for operation in item.values():
            for media in _media(operation):
                media["example"] = _for(path, example(media["schema"], schemas))
            for parameter in operation.get("parameters", ()):
                parameter["example"] = parameter_example(parameter, schemas)


def _for(path: str, made: Any) -> Any:
    """The example for that path: one of a change leaves out the name."""
    if path.endswith(("/projects/{key}", "/departments/{key}")) and "id" not in made:
        return {field: value for field, value in made.items() if field != "name"}
    if path.endswith("/scheduling-settings") and made == {}:
        return {"keep-finished": "7d"}
    return made


def _media(operation: Schema) -> Iterator[Schema]:
    told = [operation.get("requestBody", {}), *operation["responses"].values()]
    yield from (media for part in told for media in part.get("content", {}).values() if "schema" in media)


def parameter_example(parameter: Schema, schemas: Schema) -> Any:
    name = parameter["name"]
    return PARAMETERS[name] if name in PARAMETERS else example(parameter["schema"], schemas, name)


def example(schema: Schema, schemas: Schema, name: str = "", seen: tuple[str, ...] = ()) -> Any:
    """A value that the schema allows; an object gets its required fields and the texts that are in WORDS."""
    if "$ref" in schema:
        of = schema["$ref"].rpartition("/")[2]
        return REQUESTS[of] if of in REQUESTS else example(schemas[of], schemas, name, (*seen, of))
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            known = [it for it in schema[choice] if it.get("$ref", "").rpartition("/")[2] not in seen]
            return example(_best(known), schemas, name, seen)
    if "examples" in schema:
        return schema["examples"][0]
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema.get("default", schema["enum"][0])
    match schema.get("type"):
        case "object":
            return _object(schema, schemas, seen)
        case "array":
            few = schema.get("minItems", 0)
            items = schema.get("items", {})
            recurs = items.get("$ref", "").rpartition("/")[2] in seen
            return [] if recurs else [example(items, schemas, name, seen)] * max(few, 1)
        case "string":
            return _text(schema, name)
        case "integer" | "number":
            return schema.get("default", max(schema.get("minimum", 1), min(1, schema.get("maximum", 1))))
        case "boolean":
            return schema.get("default", True)
        case "null":
            return None
    return schema.get("default", "text")


def _best(choices: list[Schema]) -> Schema:
    """The first that is not null."""
    return next((it for it in choices if it.get("type") != "null"), choices[0])


def _object(schema: Schema, schemas: Schema, seen: tuple[str, ...]) -> dict[str, Any]:
    fields, needed = schema.get("properties", {}), schema.get("required", ())
    made = {
        field: example(kind, schemas, field, seen)
        for field, kind in fields.items()
        if field in needed or (field in WORDS and kind.get("type") == "string")
    }
    if len(made) < schema.get("minProperties", 0):
        made |= {field: example(kind, schemas, field, seen) for field, kind in [*fields.items()][:1]}
    return made


def _text(schema: Schema, name: str) -> str:
    text = MOMENT if name.endswith("At") else WORDS.get(name, schema.get("default") or "text")
    return str(text)[: schema.get("maxLength")].ljust(schema.get("minLength", 0), "x")

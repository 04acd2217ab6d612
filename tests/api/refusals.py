"""The refusals of requests that the schemas allow, each with the reason why no schema can express it.

The list is complete: any other refusal is a fault of the description. Each line has a request that the
description allows and the server refuses that way; remove a line whose request is accepted or not allowed.
"""

import re
from dataclasses import dataclass
from typing import Any

NUMBERS = "JSON Schema compares no two values of a body"
PARAMETERS = "OpenAPI relates no parameter to another one"
TWICE = "JSON Schema cannot say that one member of all entries differs"
NAMES = "it names something that may be there or not"
HERE = "it depends on this machine, this caller or this moment"
GRAMMAR = "it is written by a grammar of its own"
ELSEWHERE = "a template, an environment or a default may say it"


@dataclass(frozen=True, slots=True)
class Known:
    said: str  # the message; * stands for anything
    why: str
    method: str
    path: str
    body: Any = None

    def tells(self, message: str) -> bool:
        pattern = ".*".join(map(re.escape, self.said.split("*"))).replace("'", "['\"]")  # as repr chooses
        return re.fullmatch(pattern, message, re.DOTALL) is not None


TRAININGS, DISTRIBUTED = "/api/v1/workloads/trainings", "/api/v1/workloads/distributed"
PROJECT = "/api/v1/org-unit/projects/default"
IMAGE = "runai.jfrog.io/demo/quickstart"
DAYS = {"start": "2036-01-02T00:00:00Z", "end": "2036-01-01T00:00:00Z"}


def job(where: str, said: str, why: str, **spec: Any) -> Known:
    return Known(said, why, "POST", where, {"projectName": "default", "spec": {"image": IMAGE, **spec}})


def training(said: str, why: str, **spec: Any) -> Known:
    return job(TRAININGS, said, why, **spec)


def quota(said: str, why: str, **entry: Any) -> Known:
    return Known(said, why, "PATCH", PROJECT, {"resources": [entry]})


def affinity(**expression: Any) -> Any:
    return {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", **expression}]}]}


GROUPS = [{"name": "a"}]
WORKERS = {"name": "a", "replicas": 2, "minReplicas": 3}
KNOWN = (
    Known("cycle and at exclude each other.", PARAMETERS, "GET", "/api/v1/replay/record?cycle=1&at=1"),
    Known(
        "The scope is given twice.",
        PARAMETERS,
        "GET",
        "/api/v2/policy/trainings?scope=project&departmentId=a",
    ),
    Known("Which *?", PARAMETERS, "DELETE", "/api/v2/policy/trainings?scope=project"),
    # -- of submissions
    training("-i, --image must be set.", ELSEWHERE, image=None),
    training("There is no priority '*'.", NAMES, priorityClass="none"),
    training("spec.command cannot be split into words: *.", GRAMMAR, command="'"),
    training("spec.args cannot be split into words: *.", GRAMMAR, args="'"),
    training("Array '*' has an empty range *.", NUMBERS, array={"indexes": "2-1"}),
    training("Array '*' has too many elements (*).", NUMBERS, array={"indexes": "0-9999"}),
    training("A parallelism of * is above *.", NUMBERS, completions=2, parallelism=3),
    training("Port * is named twice.", TWICE, ports=[{"container": 80}, {"container": 80}]),
    training("The environment variable '*' has no value.", ELSEWHERE, environmentVariables=[{"name": "a"}]),
    training(
        "The fraction of a GPU is given twice.",
        NUMBERS,
        compute={"gpuDevicesRequest": 0.5, "gpuPortionRequest": 0.5},
    ),
    training(
        "The limit on * is below the request.",
        NUMBERS,
        compute={"gpuPortionRequest": 0.5, "gpuPortionLimit": 0.25},
    ),
    training(
        "Several GPUs can be shared by portion only.",
        NUMBERS,
        compute={"gpuDevicesRequest": 2, "gpuMemoryRequest": "1G"},
    ),
    training("An elastic workload needs at least 1 GPU.", ELSEWHERE, elastic=True),
    training("The begin time is in the past.", HERE, beginAt="2001-01-01T00:00:00Z"),
    training(
        "* takes one whole number.", GRAMMAR, nodeAffinityRequired=affinity(operator="Gt", values=["a"])
    ),
    training(
        "A background job gives way to every other job, so it is always preemptible.",
        NAMES,
        background=True,
        priorityClass="high",
    ),
    job(DISTRIBUTED, "Worker counts must satisfy *.", NUMBERS, numWorkers=2, minReplicas=3),
    job(DISTRIBUTED, "Task counts of a must satisfy *.", NUMBERS, taskGroups=[WORKERS]),
    job(DISTRIBUTED, "* is named twice.", TWICE, taskGroups=GROUPS * 2),
    # -- of quotas
    Known("The name of a * cannot be changed.", NAMES, "PATCH", PROJECT, {"name": "other"}),
    Known("The namespace '*' cannot be chosen.", NUMBERS, "PATCH", PROJECT, {"requestedNamespace": "a"}),
    Known("resources: pool * is named twice.", TWICE, "PATCH", PROJECT, {"resources": [{}, {}]}),
    quota("resources: rank is * and priority is *.", NUMBERS, rank="low", priority="high"),
    quota("The limit of * is below the quota*.", NUMBERS, gpu={"deserved": 2, "limit": 1}),
    # -- of what is kept for submissions, and of policies
    Known(
        "A key is named twice.",
        TWICE,
        "POST",
        "/api/v1/asset/credentials/generic-secret",
        {
            "meta": {"name": "a"},
            "spec": {"keyValuePairs": [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}]},
        },
    ),
    # -- of the rest
    Known(
        "The booking ends before it starts.",
        NUMBERS,
        "POST",
        "/api/v1/bookings",
        {"name": "a", "projectName": "default", "gpus": 1, **DAYS},
    ),
    Known(
        "The booking ends in the past.",
        HERE,
        "POST",
        "/api/v1/bookings",
        {
            "name": "a",
            "projectName": "default",
            "gpus": 1,
            "start": "2001-01-01T00:00:00Z",
            "end": "2001-01-02T00:00:00Z",
        },
    ),
    Known(
        "The booking starts in the past.",
        HERE,
        "POST",
        "/api/v1/bookings",
        {
            "name": "a",
            "projectName": "default",
            "gpus": 1,
            "start": "2001-01-01T00:00:00Z",
            "end": "2036-01-02T00:00:00Z",
        },
    ),
    Known(
        "The end is not after the start.", NUMBERS, "POST", "/api/v1/org-unit/reports", {"name": "a", **DAYS}
    ),
    Known(
        "filterBy: in groups of * there is nothing to tell projects apart.",
        NUMBERS,
        "POST",
        "/api/v1/org-unit/reports",
        {"name": "a", "start": DAYS["end"], "end": DAYS["start"], "filterBy": ["projectName==a"]},
    ),
    Known("to=* is before from=*.", NUMBERS, "GET", "/api/v1/usage?from=2036-01-02&to=2036-01-01"),
    Known(
        "Priority class * is named twice.",
        TWICE,
        "PUT",
        "/api/v1/priority-classes",
        {"priorityClasses": [{"name": "a", "value": 1}, {"name": "a", "value": 2}]},
    ),
    Known(
        "The name * is reserved for built-in priorities.",
        NAMES,
        "POST",
        "/api/v1/priority-classes",
        {"name": "low", "value": 1},
    ),
    Known(
        "There is no role '*'.",
        NAMES,
        "POST",
        "/api/v1/authorization/access-rules",
        {"subjectId": "a", "subjectType": "user", "scopeType": "tenant", "roleName": "none"},
    ),
    Known(
        "There is no permission set '*' with that id and name.",
        NAMES,
        "POST",
        "/api/v2/authorization/roles",
        {"name": "Role", "permissionSets": [{"id": "none"}]},
    ),
    Known(
        "There is no account '*' on this machine*.",
        HERE,
        "POST",
        "/api/v1/users",
        {"email": "anna", "account": "no-such-account"},
    ),
    Known(
        "You have no password here.",
        HERE,
        "POST",
        "/api/v1/me/password",
        {"currentPassword": "a", "newPassword": "12345678"},
    ),
    Known(
        "'*' is not a mail address.",
        HERE,
        "POST",
        "/api/v1/subscriptions",
        {"events": [{"category": "workloads", "types": ["end"]}], "channels": ["email"]},
    ),
    Known(
        "* has no task group '*'.",
        NAMES,
        "PUT",
        "/api/v1/workloads/{identity}/resources",
        {"cpuCoreRequest": 1, "taskGroup": "none"},
    ),
    Known("* cannot be *.", GRAMMAR, "PATCH", "/api/v1/scheduling-settings", {"stale-grace": "a"}),
    Known(
        "The name of a topology cannot be changed.",
        NAMES,
        "PUT",
        "/api/v1/network-topologies/racks",
        {"name": "other", "levels": ["rack"]},
    ),
    Known(
        "There is no permission '*'.",
        NUMBERS,
        "GET",
        "/api/v1/authorization/permitted-scopes?resourceType=self&action=delete",
    ),
)

GONE = re.compile(
    r"There is no (such limit|[a-z]+( [a-z]+)*( ['\"].*['\"])?( there)?)\.|You have no access key .*\.|"
    r".* has no (pod|attempt|taint) .*\.|No node has the label .*\.|No files of workload .* are kept\.|"
    r".* is an? .*, not an? .*\.|This server (has no login provider|records no cycles)\.|"
    r"No mail server is set\.",
    re.DOTALL,
)
"""Messages of answers 404: something does not exist, or is of another kind."""


def unexplained(status: int, told: dict[str, Any]) -> str:
    """Why a request that the schemas allow was refused, if no listed reason explains it; else ""."""
    message = str(told.get("message", ""))
    if message == "Tasks listen on the ports of the server's own machine.":
        return ""  # the engine refuses it, for a job that runs
    if status == 400 and told.get("reason") == "bad-request":
        return "" if any(known.tells(message) for known in KNOWN) else message
    if status == 404:
        return "" if GONE.fullmatch(message) else message
    return message if status in (405, 413, 415, 422) else ""

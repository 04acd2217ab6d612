"""The types on the wire: each is defined once; answers have these types, and they bound what is accepted."""

from typing import Any, get_type_hints

import pytest
from pydantic import TypeAdapter, ValidationError

from pliant.api.app import ROUTERS
from pliant.api.schemas.models import Received, answer_type, without_effect
from pliant.wire import (
    access,
    assets,
    audit,
    cluster,
    events,
    history,
    job,
    measurements,
    notices,
    organization,
    placing,
    questions,
    reports,
    server,
    session,
    submission,
    supposing,
    trash,
    usage,
    workload,
)
from tests.api.conform import conform
from tests.api.conftest import Api

MODULES = (
    access, assets, audit, cluster, events, history, job, measurements, notices, organization, placing,
    questions, reports, server, session, submission, supposing, trash, usage, workload,
)  # fmt: skip
TYPES = {
    name: kind
    for module in MODULES
    for name, kind in vars(module).items()
    if isinstance(kind, type) and kind.__module__ == module.__name__
}


def received(kind: Any, sent: Any) -> Any:
    return TypeAdapter(Received[kind]).validate_python(sent)


@pytest.mark.parametrize("name", TYPES)
def test_the_model_of_a_type_has_its_keys_and_no_other(name: str) -> None:
    model = answer_type(TYPES[name])
    assert set(model.model_fields) == set(get_type_hints(TYPES[name]))
    required = {key for key, field in model.model_fields.items() if field.is_required()}
    assert required == TYPES[name].__required_keys__


def test_every_answer_that_openapi_shows_is_of_a_type_of_the_wire(quiet: Api) -> None:
    shown = set(quiet.get("/openapi.json")["components"]["schemas"])
    assert shown - set(TYPES) == set()
    assert len(ROUTERS) and {"WorkloadItem", "Problem", "Submitted", "ServerItem", "NodeItem"} <= shown


@pytest.mark.parametrize(
    "change", [{"code": 5}, {"numbers": None}, {"message": None}, {"more": 1}, {"code": ...}]
)
def test_an_answer_that_is_not_of_its_type_is_found(change: dict[str, Any]) -> None:
    good = {"code": "no-room", "message": "1 GPU is free.", "numbers": {}, "names": []}
    conform(workload.Reason, good)
    bad = {key: value for key, value in {**good, **change}.items() if value is not ...}
    with pytest.raises(ValidationError):
        conform(workload.Reason, bad)


def test_what_is_received_is_what_was_said() -> None:
    sent = {"name": "a1", "spec": {"image": "x", "compute": {"gpuDevicesRequest": 1}, "labels": []}}
    assert received(submission.Submission, sent) == sent


def test_null_says_nothing_but_where_it_means_something() -> None:
    sent = {"name": None, "spec": {"image": None, "compute": None, "elastic": None}}
    assert received(submission.Submission, sent) == {"spec": {}}
    assert received(organization.GpuQuota, {"limit": None, "deserved": None}) == {"limit": None}


def test_a_number_will_do_where_text_is_asked_for() -> None:
    assert received(submission.Compute, {"cpuMemoryRequest": 5}) == {"cpuMemoryRequest": "5"}


@pytest.mark.parametrize(
    "spec",
    [
        {"backoffLimit": -1},
        {"backoffLimit": 2**31 + 1},
        {"image": "x" * 1001},
        {"image": "a\x00"},
        {"nodePools": "default"},
        {"tolerations": [{}] * 101},
        {"ports": [{"container": 0}]},
        {"restartPolicy": "Sometimes"},
        {"labels": [{"value": "no name"}]},
        {"compute": {"gpuDeviceRequest": 1}},
        {"maxRuntimeSeconds": float("inf")},
    ],
)
def test_what_is_out_of_bounds_is_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        received(submission.Submission, {"spec": spec})


def test_what_is_not_known_is_refused_and_what_does_nothing_is_named() -> None:
    ports = [{"container": 80, "toolType": "x"}]
    sent = {"spec": {"probes": {}, "createHomeDir": True, "ports": ports}}
    found = without_effect(submission.Submission, received(submission.Submission, sent))
    assert sorted(found) == ["spec.createHomeDir", "spec.ports[0].toolType"], "an empty value says nothing"
    for wrong in ({"colour": "red"}, {"spec": {"imge": "x"}}, {"spec": {"ports": [{"tls": True}]}}):
        with pytest.raises(ValidationError, match="there is no field"):
            received(submission.Submission, wrong)

"""Compares our description of each field with what another API publishes about it."""

from pathlib import Path

import pytest

from tests.api.conftest import Api
from tests.api.published import ANSWERED, SENT, Call, Field, Ours, matches, misfits, read, reasons

HERE = Path(__file__).parent
PUBLISHED = HERE / "published.txt"
DIFFERENCES = HERE / "differences.txt"


def test_types_differ_where_the_list_says_why_and_nowhere_else(quiet: Api) -> None:
    ours, calls, known = Ours(quiet.get("/openapi.json")), read(PUBLISHED), reasons(DIFFERENCES)
    assert len(calls) > 60
    assert sum(len(call.fields) for call in calls) > 5000
    found = [told for call in calls for told in ours.differences(call)]
    unexplained = [told for told in found if not any(matches(pattern, told) for pattern in known)]
    assert not unexplained, "\n".join(unexplained)
    gone = [pattern for pattern in known if not any(matches(pattern, told) for told in found)]
    assert not gone, "\n".join(gone)


@pytest.mark.parametrize(
    ("operation", "way", "field", "said"),
    [
        ("GET /api/v1/workloads", ANSWERED, Field("workloads[].name", "integer"), "string, not integer"),
        ("GET /api/v1/workloads", ANSWERED, Field("workloads[].completedAt", "string"), "may be null"),
        (
            "GET /api/v1/workloads",
            ANSWERED,
            Field("workloads[].phase", "string", words=frozenset({"Pending"})),
            "Completed|Creating|",
        ),
        ("GET /api/v1/workloads", ANSWERED, Field("workloads[].none", "string"), "we have none"),
        ("GET /api/v1/workloads", ANSWERED, Field("next", "integer", needed=True), "may be left out"),
        (
            "GET /api/v1/workloads",
            ANSWERED,
            Field("workloads[].name", "string", format="date-time"),
            "no date-time",
        ),
        ("POST /api/v1/workloads/trainings", SENT, Field("spec.image", "boolean"), "string, not boolean"),
        ("POST /api/v1/workloads/trainings", SENT, Field("spec.backoffLimit", "number"), "integer, not"),
        ("POST /api/v1/org-unit/projects", SENT, Field("name", "string"), "must be there"),
        ("POST /api/v1/org-unit/projects", SENT, Field("name", "string", True, null=True), "not null"),
        (
            "POST /api/v1/workloads/trainings",
            SENT,
            Field("spec.restartPolicy", "string", words=frozenset({"Always", "Sometimes"})),
            "not Sometimes",
        ),
        ("POST /api/v1/workloads/trainings", SENT, Field("spec.probes", "object"), "of any type"),
    ],
)
def test_a_difference_is_found(quiet: Api, operation: str, way: str, field: Field, said: str) -> None:
    found = list(Ours(quiet.get("/openapi.json")).differences(Call(operation, way, (field,))))
    assert len(found) == 1, found
    assert f"{field.path}: {said}" in found[0]


def test_the_list_is_read_as_it_is_written(tmp_path: Path) -> None:
    answered = "GET /a <\n a array\n  [] object = part\n b string u|v\n c string @uuid\n"
    (tmp_path / "list").write_text(f"part :\n x* integer?\n{answered}PUT /a > = part\n")
    first, second = read(tmp_path / "list")
    assert [it.path for it in first.fields] == ["a", "a[]", "a[].x", "b", "c"]
    assert first.fields[2] == Field("a[].x", "integer", needed=True, null=True)
    assert (first.fields[3].words, first.fields[4].format) == ({"u", "v"}, "uuid")
    assert second == Call("PUT /a", SENT, (Field("x", "integer", needed=True, null=True),))


def test_a_value_that_differs_is_found() -> None:
    fields = (
        Field("a", "array"),
        Field("a[]", "object"),
        Field("a[].n", "integer"),
        Field("a[].at", "string", format="date-time"),
        Field("a[].word", "string", words=frozenset({"u"})),
    )
    call = Call("GET /a", ANSWERED, fields)
    assert list(misfits(call, {"a": [{"n": 1, "at": "2026-01-01T00:00:00Z", "word": "u"}]})) == []
    told = list(misfits(call, {"a": [{"n": 1.5, "at": "yesterday", "word": "v"}, {"n": None}]}))
    assert told == [
        "GET /a < a[].n: number, not integer",
        "GET /a < a[].n: may be null",
        "GET /a < a[].at: no date-time",
        "GET /a < a[].word: any word",
    ]

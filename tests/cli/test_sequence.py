"""--array, --dependency, --after, --begin, and the names that stand for several jobs."""

import datetime
import time

import pytest

from pliant.cli.submit.sequence import begin
from tests.cli.fake import Answer
from tests.cli.items import OUTCOME, workload

TRAININGS = "/api/v1/workloads/trainings"


def spec(fake):
    return fake.sent("POST", TRAININGS)[-1]["spec"]


def test_what_is_sent(fake, run):
    line = "pliant submit s -g 1 --array 0-15%4 --dependency afterok:a:b,afterany:c --after d -- true"
    assert run(line).code == 0
    assert spec(fake)["array"] == {"indexes": "0-15", "atOnce": 4}
    assert [(one["when"], one["on"]) for one in spec(fake)["dependencies"]] == [
        ("afterok", "a"),
        ("afterok", "b"),
        ("afterany", "c"),
        ("afterok", "d"),
    ]
    assert "dependencyAny" not in spec(fake)
    run("pliant submit --job-name-prefix night --singleton -g 1 -- true")
    assert spec(fake)["dependencies"] == [{"on": "night", "when": "singleton"}]
    assert "singleton" not in spec(fake)
    run("pliant training submit s --dependency afterok:a?afternotok:b -c -- true")
    assert spec(fake)["dependencyAny"] is True
    assert len(spec(fake)["dependencies"]) == 2
    assert "keepPending" not in spec(fake)
    run("pliant submit a -i ubuntu --after b --keep-pending")
    assert spec(fake)["keepPending"] is True


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--array 0-3%0", "write a number after '%'"),
        ("--array 0-3%x", "write a number after '%'"),
        ("--dependency prep", "expected afterok:NAME"),
        ("--dependency afterok:", "a name is missing"),
        ("--dependency afterok:a,afterok:b?afterok:c", "not both"),
        ("--dependency singleton", "use --array INDEXES%1"),
        ("--dependency afterok:a?afterok:b --after c", "exclude a '?'"),
        ("--singleton", "--singleton needs --job-name-prefix PREFIX"),
        ("--begin yesterday", "not a time"),
        ("--begin 25:00", "not a time of day"),
        ("--begin now-2h", "write now+TIME"),
        ("--begin 2020-01-01T08:00", "in the past"),
        ("--begin now+9999999d", "not a time"),
        ("--begin 9999-12-31T23:59:59-23:59", "not a time"),
    ],
)
def test_bad_input_is_refused_before_it_is_sent(fake, run, option, said):
    done = run(f"pliant submit s -g 1 {option} -- true")
    assert done.code == 2
    assert said.lower() in done.err.lower()
    assert not fake.sent("POST", TRAININGS)


def test_begin_times():
    now = datetime.datetime.now(datetime.UTC)
    hour = datetime.timedelta(hours=1)
    later = datetime.datetime.fromisoformat(begin("now+2h", "--begin"))
    assert now + 2 * hour <= later <= datetime.datetime.now(datetime.UTC) + 2 * hour + hour / 60
    past = time.localtime(time.time() - 120)
    tomorrow = datetime.datetime.fromisoformat(begin(f"{past.tm_hour}:{past.tm_min:02}", "--begin"))
    assert tomorrow > now, "a time of day that is past means tomorrow"
    assert begin("2126-12-01T08:00+02:00", "--begin") == "2126-12-01T06:00:00+00:00"


def test_a_time_of_day_is_that_of_the_clock_also_after_summer_time_has_begun(monkeypatch):
    soon = time.gmtime(time.time() + 3600)
    change = f"{soon.tm_yday - 1}/{soon.tm_hour}:{soon.tm_min:02}"
    monkeypatch.setenv("TZ", f"AAA0BBB,{change},{(soon.tm_yday + 99) % 365}")
    time.tzset()
    try:
        past = time.localtime(time.time() - 120)
        wanted = f"{past.tm_hour:02}:{past.tm_min:02}"
        begins = datetime.datetime.fromisoformat(begin(wanted, "--begin")).timestamp()
        assert time.strftime("%H:%M %Z", time.localtime(begins)) == f"{wanted} BBB"
    finally:
        monkeypatch.undo()
        time.tzset()


def array(count: int, **each):
    place = {"id": "a", "name": "sweep", "count": count, "atOnce": None}
    return [
        workload(f"sweep-{at}", number=at + 5, array={**place, "index": at}, **each) for at in range(count)
    ]


def test_an_array_is_one_line_of_the_list(fake, run):
    run("pliant project set team-a")
    fake.workloads = [workload("alone"), *array(4)]
    fake.workloads[4] |= {"status": "Pending", "runningPods": 0, "pendingPods": 1}
    rows = run("pliant list --columns name,status --no-headers").out.splitlines()
    assert [row.split(maxsplit=1) for row in rows] == [
        ["alone", "Running"],
        ["sweep", "3 running, 1 pending"],
    ]
    gpus = run('pliant list --columns "GPUs Allocated (Requested)" --no-headers').out.splitlines()
    assert gpus == ["1.00 (1.00)", "4.00 (4.00)"]
    assert "sweep-2" in run("pliant list jobs sweep-2").out


def test_names_of_arrays_numbers_and_the_newest_one(fake, run):
    run("pliant project set team-a")
    fake.workloads = [*array(2), workload("mine", number=9), workload("theirs", number=10, submittedBy="eve")]
    fake.answers.clear()
    assert run("pliant cancel sweep").out.splitlines() == [
        "sweep-0 is being cancelled.",
        "sweep-1 is being cancelled.",
    ]
    assert run("pliant cancel 6 @").out.splitlines() == [
        "sweep-1 is being cancelled.",
        "mine is being cancelled.",
    ]
    assert OUTCOME["exitCode"] is not None
    assert [line.split()[0] for line in run("pliant wait sweep").out.splitlines()] == ["sweep-0", "sweep-1"]
    done = run("pliant describe job sweep")
    assert done.code == 2
    assert done.err == "Error: sweep is an array of 2 jobs.\nName one of them, for example sweep-0.\n"
    assert run("pliant describe job 9").code == 0
    assert run("pliant describe job 99").code == 3


def test_an_array_of_one(fake, run):
    made = {"name": "one", "workloadId": "id-one", "elements": ["one-0"]}
    fake.answers["POST", "/api/v1/workloads/trainings"] = Answer(202, made)
    done = run("pliant submit one -p team-a -i ubuntu --array 0 -- true")
    assert "one is an array of 1 job: one-0.\n" in done.err

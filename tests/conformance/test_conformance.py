"""Every scenario of our copy passes, or known.json names the bug or the ADR that explains it."""

import copy
import json
from pathlib import Path

import pytest

from tests.conformance.__main__ import DATA, left_out, main, read
from tests.conformance.build import build
from tests.conformance.compare import differences
from tests.conformance.inputs import inputs
from tests.conformance.known import known, verdict
from tests.conformance.play import EPOCH, play
from tests.conformance.shuffle import shuffled
from tests.conformance.state import begin

ADR = Path(__file__).parents[2] / "docs" / "adr"
CASES = {case["id"]: case for case in read([DATA])}
RUN = {name: case for name, case in CASES.items() if not left_out(case)}
KNOWN = known(False)


def test_the_whole_copy_is_there():
    assert len(CASES) == 246


@pytest.mark.parametrize("defaults", [False, True], ids=["youngest", "defaults"])
def test_known_verdicts_are_of_scenarios_that_are_run_and_name_a_decision(defaults):
    hand = {case["id"] for case in read([DATA.parent / "hand"])}
    assert set(known(defaults)) <= {*RUN, *hand}, "known.json names scenarios that are not run"
    for name, record in known(defaults).items():
        assert record["ours"], f"{name} passes: take it off known.json"
        assert list(ADR.glob(f"{record['adr']}-*.md")), f"{name}: there is no page {record['adr']}"


@pytest.mark.parametrize("defaults", [False, True], ids=["youngest", "defaults"])
@pytest.mark.parametrize("name", RUN)
def test_scenario(name, defaults):
    found = play(RUN[name], defaults)
    assert verdict(name, found, defaults) != "failed", "\n".join(found) or "it passes: change known.json"


def test_with_our_settings_nearly_all_scenarios_have_the_source_s_verdict():
    """In two of them the verdict depends on the order of victims."""
    assert sorted(set(known(True)) & set(RUN)) == ["gpu_memory-010", "integration_reclaim-024"]
    assert not set(known(False)) & set(RUN)


def test_a_verdict_that_is_neither_theirs_nor_ours_fails():
    name = "integration_reclaim-024"
    ours = play(RUN[name], True)
    assert verdict(name, ours, True) == "ours"
    assert verdict(name, [], True) == verdict(name, ours[:-1], True) == "failed"


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_other_names_and_another_order_change_no_verdict(seed):
    """Plays all scenarios in one order; `make test-long` plays them in a second one."""
    changed = [name for name, case in RUN.items() if bool(play(shuffled(case, seed))) != (name in KNOWN)]
    assert not changed


# ---------------------------------------------------------------- the runner notices what it should
def altered(name, change):
    case = copy.deepcopy(CASES[name])
    change(case)
    return " ".join(play(case))


def test_a_wrong_status_is_a_failure():
    def change(case):
        case["expected"]["jobs"]["pending_job"]["status"] = "binding"

    assert "pending_job-0 is pipelined on node0, expected binding" in altered("allocate-000", change)


def test_a_wrong_node_is_a_failure():
    def change(case):
        case["expected"]["jobs"]["pending_job"]["node"] = "node7"

    assert "expected on node7" in altered("allocate-000", change)


def test_one_call_too_many_is_a_failure():
    def change(case):
        case["expected"]["max_calls"]["pipeline"] = 0

    assert "1 calls to pipeline, expected at most 0" in altered("allocate-000", change)


def test_sums_of_requests_are_compared():
    def change(case):
        case["expected"]["jobs"]["pending_job"]["gpus_required"] = 2

    assert "gpus_required is 1, expected 2" in altered("allocate-000", change)


def test_devices_are_compared():
    """The source expects two tasks to share a device; a different group name for one of them is a failure."""

    def change(case):
        case["expected"]["jobs"]["pending_shared_gpu_job1"]["gpu_groups"] = ["2"]

    assert "share 1 devices of node1, expected 0" in altered("fractions-003", change)


def test_later_cycles_are_compared():
    """A result that holds at first but not five cycles later is a failure."""

    def change(case):
        case["rounds"]["until_match"] = 0
        for want in case["expected"]["jobs"].values():
            if want["status"] == "running":
                want["status"] = "pending"

    assert "cycles later" in altered("integration_allocate-005", change)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda case: case["jobs"][0]["tasks"][0].update(node="nowhere"),
            "on node nowhere, which is unknown",
        ),
        (
            lambda case: case["jobs"][0]["per_task"].update(gpus=5),
            "runs on 5 GPUs of node node0, which has 1",
        ),
        (lambda case: case["jobs"][1]["tasks"][0].update(status="dancing"), "unknown status dancing"),
        (lambda case: case["projects"][0].update(parent="lost"), "belongs to lost, which is unknown"),
        (lambda case: case["jobs"][1].update(tasks=case["jobs"][0]["tasks"]), "two tasks are called"),
        (lambda case: case.update(mode="backwards"), "unknown mode 'backwards'"),
        (lambda case: case["nodes"].append(case["nodes"][0]), "two nodes are called node0"),
        (
            lambda case: case["jobs"].append({**case["jobs"][0], "tasks": []}),
            "two jobs are called victim_job",
        ),
        (lambda case: case["projects"].append(case["projects"][0]), "two queues are called queue0"),
        (lambda case: case["departments"][0].update(parent="queue0"), "is below itself"),
        (lambda case: case["nodes"][0].update(taints=[{}]), "not supported: the word 'taints' of a node"),
        (lambda case: case["jobs"][0].update(colour="red"), "not supported: the word 'colour' of a job"),
        (lambda case: case.update(actions=["dance"]), "not supported: the action 'dance'"),
        (lambda case: case["jobs"][1].pop("tasks"), "KeyError: 'tasks'"),
        (lambda case: case["expected"]["jobs"].update(ghost={"status": "pending"}), "no such job"),
    ],
)
def test_a_scenario_that_contradicts_itself_fails_by_name(change, says):
    assert says in altered("allocate-000", change)


def test_the_command_counts_and_says_what_differed(tmp_path, capsys):
    good, bad = copy.deepcopy(CASES["allocate-000"]), copy.deepcopy(CASES["allocate-000"])
    bad["id"], bad["nodes"] = "empty", []
    (tmp_path / "two.json").write_text(json.dumps([good, bad]))
    (tmp_path / "one.json").write_text(json.dumps(good))
    assert main([str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("empty (victims=youngest): contradicts itself: task victim_job-0")
    assert lines[-2:] == [
        "victims=youngest: 2 passed, 0 with our own verdict, 1 failed",
        "defaults: 2 passed, 0 with our own verdict, 1 failed",
    ]
    assert main([str(tmp_path / "one.json"), "--shuffle", "7"]) == 0
    assert (
        capsys.readouterr().out.splitlines()[0]
        == "victims=youngest: 1 passed, 0 with our own verdict, 0 failed"
    )
    assert main([str(tmp_path / "none.json")]) == 2
    assert "cannot read scenarios" in capsys.readouterr().err


def test_areas_left_out_are_named_and_can_be_asked_for(capsys):
    main(["--area", "numa"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "left out: 8 of area numa"
    assert lines[-1] == "defaults: 0 passed, 0 with our own verdict, 0 failed"
    main(["--area", "numa", "--all"])
    assert capsys.readouterr().out.splitlines()[-1].endswith(" failed")


def test_the_peer_s_benchmark_inputs_can_be_read():
    """The small inputs; each is a scenario without expectations."""
    made = inputs()
    assert len(made) == 34
    for name in (
        "AllocateAction_Small",
        "ReclaimLargeJobs_10Node",
        "ReclaimManySingleGPUJobsFullCycle_10Node",
    ):
        assert play(made[name]()) == []


# ---------------------------------------------------------------- keys that our copy does not use
def small(*tasks, jobs=(), **expected):
    """One node of 2 GPUs, one project; a job with these (status, node) tasks and others."""
    base = copy.deepcopy(CASES["allocate-000"])
    base["nodes"][0]["gpus"] = 2

    def row(name, spec, age):
        shape = {**base["jobs"][0], "name": name, "created_minutes_ago": age, "min_members": len(spec)}
        rows = [{"id": f"{name}-{at}", "status": status} for at, (status, _) in enumerate(spec)]
        for task, (_, node) in zip(rows, spec, strict=True):
            task.update({"node": node} if node else {})
        return {**shape, "tasks": rows}

    base["jobs"] = [row("job", tasks, 9), *(row(f"other{at}", spec, at) for at, spec in enumerate(jobs))]
    base["expected"] = {"tasks": {}, "jobs": {}, "max_calls": {}, **expected}
    return base


def want(**statuses):
    return {
        name.replace("__", "-"): {"status": status, "gpus_required": 1} for name, status in statuses.items()
    }


def test_gated_tasks_keep_their_job_from_starting():
    waits = small(("pending", None), ("gated", None), tasks=want(job__0="pending", job__1="gated"))
    assert play(waits) == []
    goes = small(("pending", None), ("pending", None), tasks=want(job__0="binding", job__1="binding"))
    assert play(goes) == []


def test_a_promise_made_before_lies_on_what_is_being_left():
    """One device is in use, one is being left: the promise takes the second, and no other task gets it."""
    case = small(
        ("running", "node0"),
        jobs=[[("releasing", "node0")], [("pipelined", "node0")], [("pending", None)]],
        tasks=want(job__0="running", other0__0="releasing", other1__0="pipelined", other2__0="pending"),
    )
    assert play(case) == []


def test_a_start_time_that_was_not_refreshed():
    case = small(("running", "node0"))
    case["expected"]["jobs"] = {
        "job": {"status": "running", "gpus_required": 1, "started_at_least_s_ago": 50}
    }
    assert play(case) == []
    case["expected"]["jobs"]["job"]["started_at_least_s_ago"] = 70
    assert play(case) == ["job job: its start time was refreshed"]


def test_a_start_time_is_refreshed_by_a_new_start_in_rounds():
    """One task ran before the first cycle, one was started in it."""
    case = small(("running", "node0"), ("running", "node0"))
    case["expected"]["tasks"] = {
        name: {"status": "running", "gpus_required": 1, "started_at_least_s_ago": 60}
        for name in ("job-0", "job-1")
    }
    case.update(mode="rounds", rounds={"until_match": 2, "after_match": 3, "delay_s": 1})
    assert play(case) == []
    case["jobs"][0]["tasks"][1].update(status="pending", node=None)
    assert play(case) == ["task job-1: its start time was refreshed"]


@pytest.mark.parametrize("status", ["allocated", "bound", "binding", "running"])
def test_what_has_a_place_has_a_start_time(status):
    case = small((status, "node0"))
    state = begin(case, EPOCH)
    case["expected"]["jobs"] = {"job": {"status": status, "gpus_required": 1}}
    world = build(state, EPOCH, EPOCH).world
    assert [*differences(case, state, world, (), EPOCH)] == []
    state.tasks["job-0"].started = None
    (said,) = differences(case, state, world, (), EPOCH)
    assert said == f"job job: job-0 is {status} and has no start time"


def test_ended_and_deleted_tasks_are_left_alone():
    case = small(("succeeded", "node0"), ("deleted", None), tasks=want(job__0="succeeded", job__1="deleted"))
    assert play(case) == []


def test_best_effort_asks_for_nothing():
    case = small(("pending", None), jobs=[[("running", "node0")], [("running", "node0")]])
    case["jobs"][0]["per_task"] = {"best_effort": True, "gpus": 0}
    case["nodes"][0]["cpu"] = 2
    none = {"status": "binding", "gpus_required": 0, "cpu_required": 0, "memory_required_bytes": 0}
    case["expected"]["jobs"] = {"job": none}
    assert play(case) == []

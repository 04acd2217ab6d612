"""`python -m pliant.sim run` and `compare`: results of small traces, identical bytes, interrupted runs."""

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pliant.sim import plain, results
from pliant.sim.__main__ import main
from pliant.sim.facts import facts_of
from pliant.sim.report import report
from pliant.sim.simulation import Assumed, Simulation
from tests.sim.small import HEAD, JOBS, written

DATA = Path(__file__).parent / "data"


def run(capsys, *words):
    code = main(["run", *map(str, words)])
    return code, json.loads(capsys.readouterr().out)


def decided(folder):
    lines = (folder / "decisions.csv").read_text().splitlines()[1:]
    return [line.split(",", 1)[1] for line in lines]


def test_what_is_decided_and_measured(tmp_path, capsys):
    trace = written(tmp_path / "t")
    code, found = run(capsys, trace, "--checkpoint", 45_000, "--out", tmp_path / "o")
    assert code == 0
    assert decided(tmp_path / "o") == [
        "place,allocate,j1,main-0 main-1 main-2 main-3 main-4 main-5,0,6000,placed",
        "place,allocate,e1,main-0,0,1000,placed",
        "grow,grow,e1,main-0,1000,2000,grown",
        "shrink,shrink,e1,main-0,2000,1000,shrunk",
        "place,shrink,job-4,main-0,0,500,placed",
        "evict,reclaim,j1,main-0 main-1 main-2 main-3 main-4 main-5,6000,0,reclaimed",
        "place,reclaim,b1,main-0,0,2000,placed",
        "grow,grow,e1,main-0,1000,2000,grown",
        "grow,grow,e1,main-0,2000,3000,grown",
        "place,allocate,b2,main-0,0,2000,placed",
        "grow,grow,e1,main-0,3000,4000,grown",
        *decided(tmp_path / "o")[11:],
    ]
    assert found["jobs"] == found["started"] == found["ended"] == 6
    assert found["disruption"]["gpusTaken"] == {"reclaim evict": 6.0, "shrink shrink": 1.0}
    # j1 had run 60 s on six GPUs and had saved 45; e1 10 s on two, 40 s on one and 10 s on three.
    assert found["disruption"]["gpuHoursLost"] == (6 * 15 + 20 + 40 + 30) / 3600
    assert found["allocation"]["gpus"] == 8
    assert found["waiting"]["projects"]["b"]["jobs"] == 3
    assert {"result.json", "report.html", "jobs.csv", "decisions.csv", "samples.csv"} == {
        path.name for path in (tmp_path / "o").iterdir()
    }
    page = (tmp_path / "o" / "report.html").read_text()
    assert page.count("<svg") == 3 and "src=" not in page and "http" not in page


def test_a_job_that_was_stopped_goes_on_where_it_was(tmp_path):
    """600 s in all, 60 s of them before the eviction; with a checkpoint at 45 s it repeats 15 s."""
    trace = plain.read(written(tmp_path))
    for assumed, runs in ((Assumed(), 600), (Assumed(45_000), 615), (Assumed(45_000, 10_000), 625)):
        meter = Simulation(trace, assumed, 0).run().meter
        job = meter.jobs["j1"]
        evicted = 60_000
        again = [at for at, verb, _, wid, *_ in Simulation(trace, assumed, 0).run().decisions
                 if wid == "j1" and verb == "place"][1]  # fmt: skip
        assert (job.ended or 0) - again + evicted == runs * 1000


def test_each_restart_is_lost_time(tmp_path):
    """b1 evicts j1 at 60 s and ends at 160 s. j1 then restarts on its six GPUs, which takes 60 s."""
    trace = plain.read(written(tmp_path, HEAD + "0,a,1,600,j1,6,,,,\n60,b,4,100,b1,,,,,\n"))

    def lost(trace, assumed):
        found = report(trace, Simulation(trace, assumed, 0).run(), {})
        assert found["disruption"]["decisions"]["evict"] == 1
        return found["disruption"]["gpuHoursLost"]

    assert lost(trace, Assumed()) == 0
    assert lost(trace, Assumed(restart=60_000)) == 6 * 60 / 3600
    assert lost(trace, Assumed(45_000, restart=60_000)) == 6 * (15 + 60) / 3600
    ends = replace(trace, until=trace.began + 190_000)
    assert lost(ends, Assumed(restart=60_000)) == 6 * 30 / 3600, "the trace ends during the restart"


def test_the_same_seed_gives_the_same_bytes(tmp_path):
    jobs = HEAD + "".join(f"{at // 4},{'ab'[at % 2]},{1 + at % 3},{40 + at % 7},,,,,,\n" for at in range(60))
    trace = written(tmp_path / "t", jobs)
    for name, seed, hashed in (("x", 5, "1"), ("y", 5, "2"), ("z", 6, "1")):
        line = [sys.executable, "-m", "pliant.sim", "run", str(trace), "--seed", str(seed)]
        env = {**os.environ, "PYTHONHASHSEED": hashed}
        subprocess.run([*line, "--out", str(tmp_path / name)], env=env, check=True, capture_output=True)
    same = [path.name for path in (tmp_path / "x").iterdir()]
    assert all((tmp_path / "x" / it).read_bytes() == (tmp_path / "y" / it).read_bytes() for it in same)
    assert decided(tmp_path / "x") != decided(tmp_path / "z"), "another seed, another order within a second"


class Cut(Exception):
    pass


def test_an_interrupted_run_comes_to_the_same_wherever_it_was_cut(tmp_path):
    jobs = JOBS + "90,a,1,40,,,,,,\n95,b,4,20,,,,,,\n200,a,4,15,,,,,,\n"
    trace = plain.read(written(tmp_path, jobs))
    assumed = Assumed(30_000, 5_000)
    whole = report(trace, Simulation(trace, assumed, 1).run(), {})
    for instants in range(1, 12):
        simulation, left = Simulation(trace, assumed, 1), [instants]

        def between(left=left):
            left[0] -= 1
            if not left[0]:
                raise Cut

        with pytest.raises(Cut):
            simulation.run(between)
        other = Simulation(trace, assumed, 1)
        other.resume(simulation.saved())
        assert report(trace, other.run(), {}) == whole, f"cut after {instants} instants"


def test_the_program_goes_on_and_knows_its_own_run(tmp_path, capsys, monkeypatch):
    trace, out = written(tmp_path / "t"), tmp_path / "o"
    monkeypatch.setattr("pliant.sim.__main__.KEEP_EVERY", -1.0)
    keep = results.Results.keep

    def cut(self, saved):
        keep(self, saved)
        raise Cut

    monkeypatch.setattr(results.Results, "keep", cut)
    with pytest.raises(Cut):
        main(["run", str(trace), "--out", str(out)])
    assert [path.name for path in out.iterdir()] == ["unfinished"], "nothing that could pass for a result"
    monkeypatch.setattr(results.Results, "keep", keep)
    code, other = run(capsys, trace, "--seed", 2, "--out", out)
    assert code == 2 and "an interrupted run with another trace" in other["error"]
    assert main(["compare", str(out), str(out)]) == 2
    assert "this run was interrupted" in capsys.readouterr().out
    kept = (out / "unfinished").read_bytes()
    for wrong in (kept[: len(kept) // 2], kept[:-1], b"", kept[:200] + b"x" + kept[201:]):
        (out / "unfinished").write_bytes(wrong)
        code, other = run(capsys, trace, "--out", out)
        assert code == 2 and "unfinished: this file is cut off or damaged" in other["error"]
    (out / "unfinished").write_bytes(kept)
    with monkeypatch.context() as newer:
        newer.setattr("pliant.sim.__main__.FORMAT", 0)  # a program with another format of rows
        assert "an interrupted run with another trace" in run(capsys, trace, "--out", out)[1]["error"]
    code, found = run(capsys, trace, "--out", out)
    code, whole = run(capsys, trace)
    assert found == whole and not (out / "unfinished").exists()


def test_a_full_disk_leaves_no_half_result(tmp_path, capsys, monkeypatch):
    trace, out, sync = written(tmp_path / "t"), tmp_path / "o", os.fsync
    calls = iter([False, False, True])

    def full(descriptor):
        if next(calls, True):
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(results.os, "fsync", full)
    code, found = run(capsys, trace, "--out", out)
    assert code == 2 and "samples.csv: cannot be written: No space left on device" in found["error"]
    assert sorted(path.name for path in out.iterdir()) == ["decisions.csv", "jobs.csv"]
    assert main(["compare", str(out), str(out)]) == 2, "without result.json it is none"


def test_a_disk_that_is_full_in_the_middle_of_a_run(tmp_path, capsys, monkeypatch):
    """The saved state stays intact, so the same command resumes from it once there is room."""
    trace, out, sync, kept = written(tmp_path / "t"), tmp_path / "o", os.fsync, []
    monkeypatch.setattr("pliant.sim.__main__.KEEP_EVERY", -1.0)

    def full(descriptor):
        if len(kept) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)
        kept.append(descriptor)

    monkeypatch.setattr(results.os, "fsync", full)
    code, found = run(capsys, trace, "--out", out)
    assert code == 2 and found["error"] == f"{out / 'unfinished'}: cannot be written: No space left on device"
    assert [path.name for path in out.iterdir()] == ["unfinished"]
    monkeypatch.setattr(results.os, "fsync", sync)
    code, found = run(capsys, trace, "--out", out)
    assert code == 0 and found == run(capsys, trace)[1]


def test_two_runs_are_compared_down_to_the_first_decision(tmp_path, capsys):
    trace, policy = written(tmp_path / "t"), tmp_path / "more.toml"
    policy.write_text('[nodes]\nadd = 1\nlike = "n1"\n')
    run(capsys, trace, "--out", tmp_path / "a")
    code, more = run(capsys, trace, "--policy", policy, "--out", tmp_path / "b")
    assert code == 0 and more["allocation"]["gpus"] == 12
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    found = json.loads(capsys.readouterr().out)
    facts = {name: (mine, theirs) for name, mine, theirs in found["facts"]}
    assert facts["GPUs"] == ("8", "12") and facts["Evictions"] == ("1", "0")
    differs = found["firstDifference"]
    assert differs["number"] == 4 and differs["a"]["verb"] == "shrink"
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "a" / "result.json")]) == 0
    assert json.loads(capsys.readouterr().out)["firstDifference"] is None


def test_philly(capsys):
    code, found = run(capsys, DATA / "philly.csv", "--nodes", DATA / "philly_nodes.csv")
    assert code == 0
    assert (found["jobs"], found["started"], found["ended"], found["allocation"]["gpus"]) == (60, 60, 60, 128)
    assert set(found["fairness"]["projects"]) == {"0e4a51", "103959", "ed69ec", "2869ce"}
    assert found["fairness"]["windows"] > 24


def test_a_part_of_kueues_generator(tmp_path, capsys):
    """One cohort of three queues; benchmarks/kueue.py plays all 15,000 workloads of the baseline."""
    text = (DATA / "kueue.csv").read_text().replace(",5,6,20,", ",1,3,20,")
    (tmp_path / "k.csv").write_text(text.replace(",350,", ",20,").replace(",100,500,", ",8,500,"))
    code, found = run(capsys, tmp_path / "k.csv")
    assert code == 0
    assert found["jobs"] == found["ended"] == 3 * (20 + 8 + 50)
    assert found["allocation"]["gpus"] == 60
    assert all(len(fact) == 2 for fact in facts_of(found))


def test_how_far_it_is_is_told_also_while_nothing_is_submitted(tmp_path, monkeypatch, capsys):
    """While one long job follows the other, progress is still printed, with the day and the jobs ended."""
    monkeypatch.setattr("pliant.sim.__main__.TOLD_ELSEWHERE", 0.0)
    trace = written(tmp_path, JOBS + "90,a,1,864000,long,,,,,\n")
    assert main(["run", str(trace), "--progress"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "  0 %  0 of 7 jobs, 0 ended, day 0.00"
    last = [line for line in lines if line.startswith("100 %  7 of 7 jobs")]
    assert len(last) > 3 and last[-1] == "100 %  7 of 7 jobs, 7 ended, day 10.00"


def test_as_a_user_types_it(tmp_path):
    trace = written(tmp_path / "t")
    for name, more in (("a", ()), ("b", ("--checkpoint", "45s", "--restart", "10s"))):
        done = pliant("sim", "run", trace, "--out", tmp_path / name, *more)
        assert done.returncode == 0, done.stderr
        assert "Jobs:                              6, 6 started, 6 ended" in done.stdout
        lines = [line.split() for line in done.stdout.splitlines()]
        at = lines.index(["PROJECT", "QUOTA", "GPU-HOURS", "ENTITLED", "BELOW", "QUOTA", "LONGEST"])
        assert [line[:2] for line in lines[at + 1 : at + 3]] == [["a", "4"], ["b", "4"]]
    table = pliant("sim", "compare", tmp_path / "a", tmp_path / "b").stdout
    assert "Lost to restarts" in table and "GPU-hours  *" in table
    assert "Decision " in table or "The decisions are the same" in table
    for words in (("sim", "run", tmp_path / "none"), ("sim", "compare", tmp_path / "a", tmp_path / "t")):
        done = pliant(*words)
        assert done.returncode != 0 and "Traceback" not in done.stderr and str(tmp_path) in done.stderr
    assert "--seed" in pliant("sim", "run", trace, "--seed", "x").stderr
    with open("/dev/full", "w") as full:
        done = pliant("sim", "run", trace, "-o", "json", stdout=full)
    assert done.returncode != 0, "what could not be printed is no success"


def pliant(*words, stdout=subprocess.PIPE):
    line = [sys.executable, "-m", "pliant.cli", *map(str, words)]
    return subprocess.run(line, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False, timeout=280)

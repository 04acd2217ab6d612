"""Compute shares on the simulated clock.

The card runs kernels in the order of arrival and has no shares; the tests check its own trace of kernels.
"""

import signal
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from pliant.devices.cards import Cards, Kernel
from tests.shim.stage import DRIVERS, GIB, HERE, MIB, NATIVE, SHIM, Stage, compile_c, go_on, living, until

MS = 10**6
WINDOW = 2000 * MS
LOCK_OWNER = 72  # in the file of the cards: the thread that holds its lock


@pytest.fixture
def worker(tools: Path) -> Path:
    program = tools / "worker"
    if not program.exists():
        compile_c(program, HERE / "worker.c", DRIVERS / "libcuda.so.1")
    return program


def grants(stage: Stage, shares: dict[str, int], policy: str) -> dict[str, dict[str, str]]:
    share = stage.folder / "turns"
    return {
        name: stage.grant(128 * MIB, name, weight=weight, policy=policy, share=share)
        for name, weight in shares.items()
    }


@contextmanager
def started(stage: Stage, program: Path, works: dict[str, str], envs: dict[str, dict[str, str]]):
    running = {name: stage.start(program, *work.split(), env=envs[name]) for name, work in works.items()}
    with living(*running.values()):
        for process in running.values():
            until(process, "ready")
        for process in running.values():
            go_on(process)
        yield running


def run(stage: Stage, program: Path, works: dict[str, str], envs: dict[str, dict[str, str]]) -> list[Kernel]:
    stage.cards(GIB, virtual_clock=True)
    with started(stage, program, works, envs) as running:
        for process in running.values():
            assert process.wait(timeout=200) == 0
    return kernels(stage)


def kernels(stage: Stage) -> list[Kernel]:
    with closing(Cards(stage.folder / "cards")) as reader:
        return reader.kernels()


def busy(found: list[Kernel], name: str, start: int, end: int) -> int:
    """Nanoseconds for which the workload's kernels ran in this window."""
    return sum(max(0, min(k.end, end) - max(k.start, start)) for k in found if k.tag == name)


def windows(found: list[Kernel], end: int, length: int = WINDOW) -> list[tuple[int, int]]:
    first = min(k.start for k in found) + 100 * MS
    return [(at, at + length) for at in range(first, first + end * MS - length - 200 * MS, 250 * MS)]


def farthest(found: list[Kernel], name: str, share: float, end: int, length: int = WINDOW) -> float:
    """The largest relative error of its share in any window."""
    parts = []
    for start, stop in windows(found, end, length):
        total = sum(busy(found, k, start, stop) for k in {kernel.tag for kernel in found})
        parts.append(abs(busy(found, name, start, stop) / total - share) / share)
    assert len(parts) > 3
    return max(parts)


CASES = {
    "halves": ({"a": 500, "b": 500}, {"a": "2000 4 0 0 5000", "b": "2000 4 0 0 5000"}),
    "a quarter": ({"a": 250, "b": 750}, {"a": "2000 4 0 0 5000", "b": "2000 4 0 0 5000"}),
    "ten times longer": ({"a": 500, "b": 500}, {"a": "2000 2 0 0 5000", "b": "20000 2 0 0 5000"}),
    "without waiting": ({"a": 250, "b": 750}, {"a": "500 100 0 0 5000", "b": "2000 1 0 0 5000"}),
}


@pytest.mark.parametrize("name", CASES)
def test_fair_shares(stage: Stage, worker: Path, name: str) -> None:
    shares, works = CASES[name]
    found = run(stage, worker, works, grants(stage, shares, "fair"))
    for workload, weight in shares.items():
        assert farthest(found, workload, weight / 1000, 5000) < 0.05, workload
    start, stop = windows(found, 5000)[0][0], windows(found, 5000)[-1][1]
    # returning a turn wakes the waiting process: while wake-ups could be lost, 2.4 % and more were idle
    assert sum(busy(found, workload, start, stop) for workload in shares) > 0.995 * (stop - start)


def test_who_takes_the_place_of_one_that_ended_with_the_turn_does_not_pay_for_it(
    stage: Stage, worker: Path
) -> None:
    """Seen on a real GPU: a quarter got nothing for the first 1.5 s, and 20.1 % over 8 s."""
    stage.cards(GIB, virtual_clock=True)
    strict = grants(stage, {"first": 250}, "strict")  # alone, so it holds the turn when it ends
    for name, env in {"first": strict["first"], "bare": {"PLIANT_SIM_TAG": "bare"}}.items():
        with started(stage, worker, {name: "2000 4 0 0 1000"}, {name: env}) as running:
            assert running[name].wait(timeout=200) == 0
    shares, works = CASES["a quarter"]
    with started(stage, worker, works, grants(stage, shares, "fair")) as running:
        for process in running.values():
            assert process.wait(timeout=200) == 0
    found = [kernel for kernel in kernels(stage) if kernel.tag in shares]
    assert farthest(found, "a", 0.25, 5000) < 0.05


def test_fair_shares_of_three(stage: Stage, worker: Path) -> None:
    """The smallest has turns of 24 ms: an additional one is 6 % of its share in 2 s, 2.4 % in 5 s."""
    shares = {"a": 200, "b": 300, "c": 500}
    works = {"a": "2000 4 0 0 8000", "b": "1000 8 0 0 8000", "c": "3000 2 0 0 8000"}
    found = run(stage, worker, works, grants(stage, shares, "fair"))
    for workload, weight in shares.items():
        assert farthest(found, workload, weight / 1000, 8000, 5000 * MS) < 0.05, workload


@pytest.mark.parametrize("name", ["a quarter", "ten times longer"])
def test_without_the_shim_they_miss(stage: Stage, worker: Path, name: str) -> None:
    shares, works = CASES[name]
    envs = {workload: {"PLIANT_SIM_TAG": workload} for workload in shares}
    found = run(stage, worker, works, envs)
    assert max(farthest(found, workload, weight / 1000, 5000) for workload, weight in shares.items()) > 0.2


def test_idle_time_goes_to_who_waits(stage: Stage, worker: Path) -> None:
    works = {
        "a": "2000 2 100 200 5000",
        "b": "2000 4 0 0 5000",
    }  # a wants half of the time; its share is half
    found = run(stage, worker, works, grants(stage, {"a": 500, "b": 500}, "fair"))
    start, stop = windows(found, 5000)[0][0], windows(found, 5000)[-1][1]
    used = busy(found, "a", start, stop) + busy(found, "b", start, stop)
    assert used / (stop - start) > 0.95
    own = busy(found, "a", start, stop)
    assert own / (stop - start) > 0.15  # 100 ms of work at half speed, 200 ms of pause: a sixth
    assert used - own > 0.95 * ((stop - start) - own)


def test_strict_gets_its_share_and_no_more(stage: Stage, worker: Path) -> None:
    found = run(stage, worker, {"a": "2000 4 0 0 5000"}, grants(stage, {"a": 250}, "strict"))
    for start, stop in windows(found, 5000):
        assert 0.95 < busy(found, "a", start, stop) / (stop - start) / 0.25 < 1.05


def test_none_is_the_card_s_own_order(stage: Stage, worker: Path) -> None:
    works = {"a": "2000 4 0 0 3000", "b": "2000 4 0 0 3000"}
    found = run(stage, worker, works, grants(stage, {"a": 250, "b": 750}, "none"))
    assert farthest(found, "a", 0.5, 3000) < 0.05


def in_the_driver(stage: Stage, pid: int) -> bool:
    """True if one of its stopped threads holds the simulated card's own lock, which blocks all others."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        while task.joinpath("stat").read_text().rsplit(")", 1)[1].split()[0] != "T":
            pass
    with (stage.folder / "cards").open("rb") as file:
        file.seek(LOCK_OWNER)
        return Path(f"/proc/{pid}/task/{int.from_bytes(file.read(4), 'little')}").exists()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_holder_that_is_gone_is_passed_over(stage: Stage, worker: Path, how: signal.Signals) -> None:
    stage.cards(GIB, virtual_clock=True)
    envs = grants(stage, {"a": 500, "b": 500}, "fair")
    works = {"a": "2000 4 0 0 100000", "b": "2000 4 0 0 100000"}  # long enough for any test
    with started(stage, worker, works, envs) as running:
        while len(kernels(stage)) < 300:
            assert running["b"].poll() is None
        running["a"].send_signal(how)
        while how == signal.SIGSTOP and in_the_driver(stage, running["a"].pid):
            running["a"].send_signal(signal.SIGCONT)
            running["a"].send_signal(how)
        after = [0]
        while after[-1] <= 500 * MS:  # until it has continued for a while
            assert running["b"].poll() is None
            found = kernels(stage)
            gone = max(k.end for k in found if k.tag == "a")
            after = sorted(k.start - gone for k in found if k.tag == "b" and k.end > gone) or [0]
    assert after[0] < 200 * MS


@pytest.mark.parametrize("case", ["tie", "died", "silent"])
def test_who_gets_the_lease(stage: Stage, tools: Path, case: str) -> None:
    program = tools / "lease"
    if not program.exists():
        compile_c(program, HERE / "lease.c", NATIVE / "shim" / "lease.c", NATIVE / "shim" / "sys.c")
    assert stage.run(program, case, stage.folder / "turns", check=False) == "ok\n"


def test_alone_nothing_is_in_the_way(stage: Stage, worker: Path) -> None:
    found = run(stage, worker, {"a": "2000 4 0 0 1000"}, grants(stage, {"a": 100}, "fair"))
    start, stop = found[5].start, found[-5].end
    assert busy(found, "a", start, stop) == stop - start


def test_alone_no_thread_is_started(stage: Stage) -> None:
    stage.cards(GIB)
    env = grants(stage, {"a": 100}, "fair")["a"]
    program = stage.start(*stage.command("soname", "init", "ctx", "launch:100:20", "ready"), env=env)
    with living(program):
        until(program, "ready")
        assert len(list(Path(f"/proc/{program.pid}/task").iterdir())) == 1


def test_captures_are_left_alone(stage: Stage, worker: Path) -> None:
    stage.cards(GIB)
    env = grants(stage, {"a": 500, "b": 500}, "fair")
    other = stage.start(worker, *["2000", "2", "0", "0", "100000"], env=env["b"])
    with living(other):
        until(other, "ready")
        go_on(other)
        said = stage.probe("proc2", "init", "ctx", "launch:2000:20", "capture", "sync", env=env["a"])
        assert said["capture"] == [0, 0, 0] and said["launch"] == [0]


def test_a_share_file_that_cannot_be_used_is_said_once(stage: Stage) -> None:
    stage.cards(GIB)
    env = stage.grant(128 * MIB, policy="fair", share=stage.folder / "no" / "where")
    done = stage.complete(*stage.command("soname", "init", "ctx", "launch:100:3", "launch:100:3"), env=env)
    assert done.stdout.count("launch 0") == 2
    assert done.stderr.count("no compute share") == 1 and SHIM.exists()

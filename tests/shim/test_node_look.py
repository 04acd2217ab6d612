"""What an agent sees of its node: real programs on simulated GPUs; files in the kernel's format name their
pods."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pliant.control.ports import GpuLoad
from pliant.devices.config import GpuConf, Grant
from pliant.devices.kept import Kept
from pliant.devices.node_look import BYPASS, LEDGER, OUTSIDE, OVER, OVER_SECONDS, Looker
from tests.shim.stage import GIB, MIB, UUIDS, Stage, go_on, living, until

POD, OTHER = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
GPU = UUIDS[0]


class Node:
    """A fake /proc with a test's processes, and the driver's reports on them."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.on, self.now = folder / "proc", dict[int, int](), 0.0
        self.looker = Looker(self.cards, self.loads, proc=self.proc, clock=lambda: self.now)

    def process(self, pid: int, pod: str, own: int = 1, amount: int = 0) -> None:
        place = self.proc / str(pid)
        place.mkdir(parents=True)
        slash = f"/kubepods.slice/kubepods-pod{pod.replace('-', '_')}.slice/cri-containerd-f00.scope"
        (place / "cgroup").write_text(f"0::{slash if pod else '/user.slice/user-1000.slice'}\n")
        (place / "status").write_text(f"Name:\tx\nNSpid:\t{pid}\t{own}\n")
        (place / "comm").write_text("train\n")
        self.on[pid] = amount

    def cards(self) -> dict[str, dict[int, int]]:
        return {GPU: dict(self.on)}

    def loads(self) -> dict[str, GpuLoad]:
        return {GPU: GpuLoad(50, sum(self.on.values()))}


@pytest.fixture
def node(stage: Stage) -> Node:
    return Node(stage.folder)


@pytest.fixture
def program(stage: Stage) -> Iterator[subprocess.Popen[str]]:
    stage.cards(4 * GIB)
    env = stage.grant(2 * GIB)
    made = stage.start(*stage.command("soname", "init", "ctx", "fill:alloc:64M:512M", "ready"), env=env)
    with living(made):
        until(made, "ready")
        yield made


def kept(stage: Stage, limit: int = 2 * GIB) -> dict[str, Kept]:
    return {POD: Kept(POD, GpuConf("w", stage.ledger(), (Grant(GPU, limit, 256 * MIB),)), stage.ledger())}


def reasons(look: object) -> list[tuple[str, str]]:
    return [(each.uid, each.reason) for each in look.troubles]  # type: ignore[attr-defined]


def test_what_a_pod_uses_with_what_its_driver_adds(stage, node, program):
    """A context of 100 MiB is no allocation: NVML reports it, by the pid on the node."""
    node.process(7001, POD, own=program.pid, amount=612 * MIB)
    node.process(7002, OTHER, own=program.pid, amount=GIB)  # each pod counts its processes from 1
    node.looker.look(kept(stage), {POD, OTHER})
    found = node.looker.look(kept(stage), {POD, OTHER})
    (part,) = found.pods[POD].parts
    assert (part.used, part.limit, part.request, part.processes) == (612 * MIB, 2 * GIB, 256 * MIB, 1)
    assert found.troubles == () and found.outside == {GPU: 0} and found.loads[GPU].busy == 50


def test_without_a_driver_the_ledger_is_enough(stage, program):
    looker = Looker(dict, dict, proc=None)
    (part,) = looker.look(kept(stage), {POD}).pods[POD].parts
    assert part.used == 512 * MIB


def test_above_its_limit_for_a_while(stage, node, program):
    node.process(7001, POD, own=program.pid, amount=512 * MIB)
    for now, said in ((0.0, []), (OVER_SECONDS - 1, []), (OVER_SECONDS, [(POD, OVER)])):
        node.now = now
        assert reasons(node.looker.look(kept(stage, 256 * MIB), {POD})) == said
    assert reasons(node.looker.look(kept(stage), {POD})) == [], "its limit rose"
    assert reasons(node.looker.look(kept(stage, 256 * MIB), {POD})) == [], "it begins anew"


def test_who_uses_a_gpu_without_being_allowed_to(stage, node, program):
    """Seen twice in a row: a process outside its part's ledger, one of a foreign pod, one without a pod."""
    node.process(7001, POD, own=program.pid, amount=512 * MIB)
    node.process(7002, POD, own=99, amount=GIB)
    node.process(7003, OTHER, amount=GIB)
    node.process(7004, "", amount=GIB)
    whole = "33333333-3333-4333-8333-333333333333"
    node.process(7005, whole, amount=GIB)  # it belongs to a job with a whole GPU
    node.on[7006] = GIB  # it has just ended
    assert reasons(node.looker.look(kept(stage), {POD, whole})) == []
    found = node.looker.look(kept(stage), {POD, whole})
    assert reasons(found) == [(POD, BYPASS), ("", OUTSIDE), ("", OUTSIDE)]
    assert found.outside == {GPU: 2}
    texts = [each.text for each in found.troubles]
    assert (
        texts[0]
        == f"process 7002 (train) uses 1Gi of {GPU} outside of its share: it runs without the library"
    )
    assert texts[1].endswith(f"outside of all jobs: it belongs to pod {OTHER}")
    assert texts[2].endswith("outside of all jobs: it belongs to no pod")


@pytest.mark.parametrize("what", ["gone", "short", "long", "link", "empty"])
def test_ledgers_that_are_none(stage, node, program, what):
    path = stage.ledger()
    go_on(program)
    program.wait(60)
    if what == "gone":
        path.unlink()
    elif what == "link":
        path.unlink()
        path.symlink_to("/etc/passwd")
    else:
        os.truncate(path, {"short": 100, "long": 10**8, "empty": 0}[what])
    found = node.looker.look(kept(stage), {POD})
    assert reasons(found) == ([] if what == "empty" else [(POD, LEDGER)])
    assert found.pods[POD].parts[0].used == 0
    assert what != "long" or path.stat().st_size < 10**6

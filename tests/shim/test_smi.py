"""`nvidia-smi` for simulated cards: the usual table and queries, alone and through the shim."""

import sys

import pytest

from pliant.devices import smi
from tests.shim.stage import GIB, MIB, UUIDS, Stage, living, until

PROGRAM = (sys.executable, "-S", "-E", smi.__file__)


def test_the_table(stage: Stage) -> None:
    stage.cards(16 * GIB, 2 * GIB)
    env = stage.grant(8 * GIB)
    program = stage.start(*stage.command("soname", "init", "ctx", "alloc:7864M", "ready"), env=env)
    with living(program):
        until(program, "ready")
        lines = stage.run(*PROGRAM, env=env).splitlines()
        assert {len(line) for line in lines[1:] if line} == {len(smi.LINE)}, "all of one width"
        assert sum("7864MiB /   8192MiB" in line for line in lines) == 1, "one card, half of it"
        assert any(f" {program.pid} " in line and line.endswith(" 7864MiB |") for line in lines)
        whole = stage.run(*PROGRAM)
        assert "7864MiB /  16384MiB" in whole and "0MiB /   2048MiB" in whole
    assert "No running processes found" in stage.run(*PROGRAM, env=env)


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["-L"], [f"GPU {i}: Simulated-GPU (UUID: {UUIDS[i]})" for i in (0, 1)]),
        (["-L", "-i", "1"], [f"GPU 1: Simulated-GPU (UUID: {UUIDS[1]})"]),
        (
            ["--query-gpu=index,memory.total,memory.free,utilization.gpu", "--format=csv"],
            [
                "index, memory.total [MiB], memory.free [MiB], utilization.gpu [%]",
                "0, 1024 MiB, 1024 MiB, 0 %",
                "1, 2048 MiB, 2048 MiB, 0 %",
            ],
        ),
        (["--query-gpu=memory.total", "--format=csv,noheader"], ["1024 MiB", "2048 MiB"]),
        (
            ["--query-gpu", "uuid,memory.total", "--format", "csv,noheader,nounits", f"--id={UUIDS[1]}"],
            [f"{UUIDS[1]}, 2048"],
        ),
        (["--query-compute-apps=pid,used_memory", "--format=csv"], ["pid, used_memory [MiB]"]),
    ],
)
def test_queries(stage: Stage, words: list[str], lines: list[str]) -> None:
    stage.cards(GIB, 2 * GIB)
    assert stage.run(*PROGRAM, *words).splitlines() == lines


def test_who_computes(stage: Stage) -> None:
    stage.cards(GIB)
    program = stage.start(*stage.command("soname", "init", "ctx", "alloc:64M", "ready"))
    with living(program):
        until(program, "ready")
        ask = ["--query-compute-apps=pid,process_name,used_gpu_memory,gpu_uuid", "--format=csv,noheader"]
        said = stage.run(*PROGRAM, *ask).strip()
    assert said == f"{program.pid}, {stage.tools / 'probe'}, {64 * MIB // MIB} MiB, {UUIDS[0]}"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--query-gpu=memory.toal", "--format=csv"], 2, '"memory.toal" is not a valid field'),
        (["--query-gpu=memory.total"], 2, "csv"),
        (["--query-gpu"], 2, "needs a value"),
        (["-q"], 1, "Invalid combination"),
        (["-i", "7"], 6, "No devices were found"),
        (["--help"], 0, "--query-gpu"),
    ],
)
def test_what_it_cannot(stage: Stage, words: list[str], code: int, said: str) -> None:
    stage.cards(GIB)
    done = stage.complete(*PROGRAM, *words)
    assert done.returncode == code and said in done.stdout


def test_without_cards(stage: Stage) -> None:
    assert stage.complete(*PROGRAM, env={"PLIANT_SIM_CARDS": "/none"}).returncode == 9
    assert stage.complete(*PROGRAM, env={"LD_LIBRARY_PATH": ""}).returncode in (9, 12)

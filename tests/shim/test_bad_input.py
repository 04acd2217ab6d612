"""Any error in a config or a ledger: one line of output, and never more memory than intended."""

import random
import shutil
import sys
from pathlib import Path

import pytest

from pliant.devices import config, ledger
from pliant.devices.config import GpuConf, Grant
from tests.house.gaps import gap
from tests.house.seeds import seed_or
from tests.shim.stage import GIB, MIB, OOM, UUIDS, Stage, answers, go_on, living, until

NOT_PERMITTED = 800
WHOLE = f"""pliant-gpu 1
workload w
epoch 1
ledger LEDGER
gpu {UUIDS[0]} limit=1073741824 request=0 weight=1 policy=none
end 1
"""

BAD = {
    "empty": ("", "it is empty"),
    "cut in the middle": (WHOLE[:90], "it is cut short"),
    "cut at a line": (WHOLE[: WHOLE.index("end 1")], "it is cut short"),
    "without the last newline": (WHOLE.rstrip("\n"), "it is cut short"),
    "a line lost": (WHOLE.replace("end 1", "end 2"), "line 6 makes no sense"),
    "another version": (WHOLE.replace("pliant-gpu 1", "pliant-gpu 2"), "line 1 makes no sense"),
    "limit of zero": (WHOLE.replace("1073741824", "0"), "line 5 makes no sense"),
    "negative": (WHOLE.replace("1073741824", "-1"), "line 5 makes no sense"),
    "no number": (WHOLE.replace("1073741824", "half"), "line 5 makes no sense"),
    "beyond 64 bits": (WHOLE.replace("1073741824", "99999999999999999999"), "line 5 makes no sense"),
    "no limit": (WHOLE.replace("limit=1073741824", ""), "line 5 makes no sense"),
    "is not the UUID": (WHOLE.replace(UUIDS[0], "GPU-0"), "line 5 makes no sense"),
    "no ledger": (WHOLE.replace("ledger LEDGER\n", ""), "without ledger or workload"),
    "no text": (WHOLE.replace("epoch", "ep\0och"), "it is no text"),
    "too many GPUs": (
        WHOLE.replace("end 1", f"gpu {UUIDS[1]} limit=1\n" * 8 + "end 9"),
        "line 13 makes no sense",
    ),
}


def written(stage: Stage, text: str) -> dict[str, str]:
    env = stage.grant(GIB)
    stage.conf().write_text(text.replace("LEDGER", str(stage.ledger())))
    return env


@pytest.mark.parametrize("name", BAD)
def test_a_bad_config_gives_nothing(stage: Stage, name: str) -> None:
    stage.cards(4 * GIB)
    text, why = BAD[name]
    env = written(stage, text)
    done = stage.complete(*stage.command("linked", "init", "ctx", "alloc:1M", "fill:async:1M"), env=env)
    said = answers(done.stdout.splitlines())
    assert said["init"] == [NOT_PERMITTED]
    assert said["alloc"][0] != 0 and said["fill"] == [OOM, 0]
    (line,) = done.stderr.splitlines()
    assert line.startswith("pliant-gpu: no GPU memory for this program") and why in line
    assert stage.count().peak == 0


def test_a_missing_config_gives_nothing_and_shows_nothing(stage: Stage) -> None:
    stage.cards(4 * GIB)
    env = stage.grant(GIB)
    stage.conf().unlink()
    done = stage.complete(*stage.command("soname", "init"), env=env)
    assert done.stdout == f"init {NOT_PERMITTED}\n"
    assert "it is missing" in done.stderr
    code = "import pynvml as n; n.nvmlInit(); print(n.nvmlDeviceGetCount())"
    assert stage.run(sys.executable, "-c", code, env=env) == "0\n"
    del env["PLIANT_GPU_CONF"]  # lost by su or ssh: the fixed path counts, which does not exist
    done = stage.complete(*stage.command("soname", "init"), env=env)
    assert done.stdout == f"init {NOT_PERMITTED}\n"


def test_a_whole_config_works(stage: Stage) -> None:
    stage.cards(4 * GIB)
    said = stage.probe("soname", "init", "ctx", "fill:alloc:64M", env=written(stage, WHOLE))
    assert said["fill"] == [OOM, GIB]


@pytest.mark.parametrize("change", ["gone", "cut", "another workload's"])
def test_the_limit_of_before_stays_in_force(stage: Stage, change: str) -> None:
    stage.cards(4 * GIB)
    ops = ("init", "ctx", "alloc:64M", "ready", "total", "fill:alloc:64M", "ready")
    program = stage.start(*stage.command("soname", *ops), env=written(stage, WHOLE))
    with living(program):
        until(program, "ready")
        bigger = WHOLE.replace("1073741824", "4294967296").replace("LEDGER", str(stage.ledger()))
        if change == "gone":
            stage.conf().unlink()
        elif change == "cut":
            stage.conf().write_text(bigger[:-8])
        else:
            stage.conf().write_text(bigger.replace("workload w", "workload x"))
        go_on(program)
        said = answers(until(program, "ready"))
    assert said["total"] == [0, GIB]
    assert said["fill"] == [OOM, GIB - 64 * MIB]


def test_more_than_the_card_is_the_card(stage: Stage) -> None:
    stage.cards(GIB)
    done = stage.complete(*stage.command("soname", "init", "ctx", "total", "info"), env=stage.grant(4 * GIB))
    assert answers(done.stdout.splitlines())["total"] == [0, GIB]
    assert done.stderr.count("\n") == 1 and "is more than" in done.stderr


def test_a_gpu_that_was_not_given(stage: Stage) -> None:
    stage.cards(GIB, GIB)
    done = stage.complete(*stage.command("soname", "init", "total:1", "ctx:1"), env=stage.grant(GIB))
    said = answers(done.stdout.splitlines())
    assert (said["total"], said["ctx"]) == ([0, 0], [OOM])
    assert "GPU 1 of this program is not one that was given to workload w" in done.stderr
    assert stage.count(1).peak == 0


def test_a_ledger_that_is_not_ours(stage: Stage) -> None:
    stage.cards(GIB)
    env = stage.grant(GIB)
    command = stage.command("soname", "init", "ctx")

    def refused(why: str) -> None:
        done = stage.complete(*command, env=env)
        assert done.stdout.startswith(f"init {NOT_PERMITTED}\n")
        assert why in done.stderr and done.stderr.count("\n") == 1

    stage.ledger().mkdir()
    refused("cannot be opened for writing")
    stage.ledger().rmdir()
    ledger.create(stage.ledger(), "somebody-else")
    refused("belongs to another workload")
    stage.ledger().write_bytes(b"x" * ledger.SIZE)
    refused("is not one of this version")
    stage.ledger().write_bytes(b"x" * 100)
    refused("is cut short")
    stage.ledger().unlink()
    target = stage.folder / "elsewhere"
    ledger.create(target, "w")
    stage.ledger().symlink_to(target)
    refused("cannot be opened for writing")
    stage.ledger().unlink()
    ledger.create(stage.ledger(), "w")  # the node's own
    assert stage.probe("soname", "init", "ctx", "fill:alloc:64M", env=env)["fill"] == [OOM, GIB]


def test_a_ledger_full_of_nonsense_grants_nothing_more(stage: Stage) -> None:
    stage.cards(4 * GIB)
    env = stage.grant(GIB)
    ledger.create(stage.ledger(), "w")
    with stage.ledger().open("r+b") as file:
        file.seek(4096)
        file.write(random.Random(seed_or(20261121)).randbytes(ledger.SIZE - 4096))
    stage.complete(*stage.command("soname", "init", "ctx", "fill:alloc:64M"), env=env)
    assert stage.count().peak <= GIB


def test_no_room_or_right_to_write(stage: Stage) -> None:
    stage.cards(GIB)
    env = stage.grant(GIB)
    text = stage.conf().read_text().replace(str(stage.ledger()), "/proc/self/ledger")
    stage.conf().write_text(text)
    done = stage.complete(*stage.command("soname", "init"), env=env)
    assert done.stdout == f"init {NOT_PERMITTED}\n" and "cannot be opened for writing" in done.stderr
    unshare = shutil.which("unshare")
    small = stage.folder / "small"
    small.mkdir()
    mount = f"mount -t tmpfs -o size=64k small {small}"
    stage.conf().write_text(text.replace("/proc/self/ledger", str(small / "ledger")))
    words = " ".join(stage.command("soname", "init"))
    script = f"{mount} || exit 77; export LD_PRELOAD={env['LD_PRELOAD']}; exec {words}"
    quiet = {key: value for key, value in env.items() if key != "LD_PRELOAD"}
    done = stage.complete(unshare or "unshare", "-rm", "sh", "-c", script, env=quiet)
    if done.returncode == 77 or "unshare" in done.stderr:
        gap("no user namespaces", "allow unprivileged user namespaces, or run as root")
    assert done.stdout == f"init {NOT_PERMITTED}\n" and "its file system is full" in done.stderr


@pytest.mark.parametrize(
    ("grant", "why"),
    [
        (Grant(UUIDS[0], 0), "must be above 0"),
        (Grant(UUIDS[0], -5), "must be above 0"),
        (Grant(UUIDS[0], 2 * GIB), "has 1073741824 to share"),
        (Grant(UUIDS[1], GIB), "no such GPU"),
        (Grant("gpu0", GIB), "is not the UUID"),
        (Grant(UUIDS[0], GIB, request=2 * GIB), "request"),
        (Grant(UUIDS[0], GIB, weight=0), "weight"),
        (Grant(UUIDS[0], GIB, slice_us=5), "turn"),
        (Grant(UUIDS[0], GIB, share=Path("/a b")), "white space"),
    ],
)
def test_the_node_refuses_to_write_it(tmp_path: Path, grant: Grant, why: str) -> None:
    conf = GpuConf("w", tmp_path / "ledger", (grant,))
    with pytest.raises(ValueError, match=why):
        config.write(tmp_path / "gpu.conf", conf, {UUIDS[0]: GIB})
    assert list(tmp_path.iterdir()) == []


def test_portions_of_a_card_fit_together() -> None:
    usable = 143_771 * MIB - 12345
    assert config.portion_bytes(16 * GIB, 500) == 8 * GIB
    for portion, count in ((500, 2), (333, 3), (250, 4), (100, 10)):
        share = config.portion_bytes(usable, portion)
        assert share % config.GRAIN == 0
        assert share * count <= usable

"""pliant-gpu-used: the program that servers run in containers with a shared GPU."""

from pathlib import Path

from pliant.devices import config
from pliant.devices.config import GpuConf, Grant
from pliant.devices.handout import SHIM
from pliant.devices.pods import keeps_to
from tests.shim.stage import GIB, MIB, OOM, UUIDS, Stage, answers, go_on, living, until


def test_it_tells_what_is_used_and_programs_hear_of_their_limit(stage: Stage) -> None:
    def text(limit: int, epoch: int) -> str:
        return config.render(GpuConf("w", stage.ledger(), (Grant(UUIDS[0], limit),), epoch))

    def said() -> str:
        return stage.run(SHIM.parent / "pliant-gpu-used", conf, stage.ledger())

    stage.cards(4 * GIB)
    env = stage.grant(2 * GIB)
    conf = Path(env["PLIANT_GPU_CONF"])
    conf.write_text(text(2 * GIB, 1))
    ops = ["init", "ctx", "fill:alloc:64M:512M", "ready", "fill:alloc:64M", "free", "ready"]
    program = stage.start(*stage.command("soname", *ops), env=env)
    with living(program):
        until(program, "ready")
        lower = text(256 * MIB, 2)
        assert keeps_to(text(2 * GIB, 1), said())
        assert not keeps_to(lower, said()), "it has not heard"
        conf.write_text(lower)  # as a kubelet does: without a signal
        assert not keeps_to(lower, said()), "it uses more"
        go_on(program)
        assert answers(until(program, "ready"))["fill"] == [OOM, 0], "the very next allocation hears of it"
        assert keeps_to(lower, said())
    assert "used " in said() and keeps_to(lower, said()), "who has ended uses nothing"

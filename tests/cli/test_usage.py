"""limit and report against the real routes: input and output."""

import csv
import io

from pliant.model.ledger import Usage
from tests.cli.fake import Answer, Chunks
from tests.cli.test_access import real

__all__ = ["real"]

HOUR = 3_600_000_000


def test_limits(real, run):
    assert run("pliant limit list").out == "No limits are set.\n"
    assert (
        run("pliant limit set --user bob --gpus 2 --pending 50 --gpu-hours 100").out == "Limit of bob set.\n"
    )
    assert (
        run("pliant limit set --everybody --in-project default --gpus 0.5").out == "Limit of everybody set.\n"
    )
    lines = run("pliant limit list").out.splitlines()
    assert lines[0].split("  ")[0] == "USER"
    assert [line.split() for line in lines[1:]] == [
        ["bob", "all", "0", "of", "2", "0", "of", "50", "0", "of", "100"],
        ["everybody", "default", "0", "of", "0.5", "-", "-"],
    ]
    assert run("pliant limit remove --user bob").out == "Limit of bob removed.\n"
    assert run("pliant limit remove --user bob").code == 3
    for words in (
        "set --gpus 1",
        "set --user bob",
        "set --user bob --everybody --gpus 1",
        "set --user bob --gpus x",
    ):
        assert run(f"pliant limit {words}").code == 2, words
    assert run("pliant limit set --user bob --gpus 1 --in-project nowhere").code == 3


def test_a_character_in_two_pieces_of_a_file_is_whole(fake, run):
    pieces = Chunks("USER\nJürgen\n".encode().partition(b"\xc3"))
    for path, words in (("usage", "report --csv"), ("audit/log/file", "audit log --export csv")):
        fake.answers["GET", f"/api/v1/{path}"] = Answer(200, pieces)
        assert run(f"pliant {words}") == (0, "USER\nJürgen\n", "")


def test_report(real, run):
    assert run("pliant report --month 2026-02").out == "No job held a GPU from 2026-02-01 to 2026-02-28.\n"
    rows = [
        Usage("2026-10-31", "anna", "p", "default", "team-a", 3 * HOUR, HOUR, HOUR // 4, 2, 1),
        Usage("2026-11-02", "bob", "p", "default", "team-a", HOUR // 2, runs=1),
    ]
    real.loop.call(lambda draft: [draft.put(row) for row in rows] and None)
    said = run("pliant report --from 2026-10-01 --to 2026-11-30 --by user,month").out
    assert [line.split() for line in said.splitlines()] == [
        ["USER", "MONTH", "GPU", "HOURS", "USED", "RUNS", "FAILED"],
        ["anna", "2026-10", "3.00", "25", "%", "2", "1"],
        ["bob", "2026-11", "0.50", "-", "1", "0"],
        ["total", "3.50", "25", "%", "3", "1"],
    ]
    found = [*csv.reader(io.StringIO(run("pliant report --month 2026-10 --by pool --csv").out))]
    assert found[1] == ["default", "10800.0", "3600.0", "900.0", "2", "1"]
    for words in ("--by colour", "--month 2026-13", "--month 2026-10 --from 2026-10-01", "--from tomorrow"):
        assert run(f"pliant report {words}").code == 2, words

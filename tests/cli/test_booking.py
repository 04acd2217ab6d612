"""booking against the real routes: input and output."""

import re

import pytest

from tests.cli.test_access import real

__all__ = ["real"]


def test_a_reservation_and_maintenance(real, run):
    assert run("pliant booking list").out == "No bookings.\n"
    run("pliant project create team-b --quota 2")
    first = run("pliant booking create demo -p team-b -g 1 --start now+1h --for 2h --comment visit")
    made = first.out
    assert first.code == 0, first.err
    assert re.fullmatch(
        r"Booking demo created: 1 GPU for team-b on node-0\*1, 2\S+ \S+ to 2\S+ \S+\.\n", made
    )
    assert run("pliant booking create demo -p team-b -g 1 --for 2h").code == 5
    fix = run("pliant booking create fix --maintenance --node node-0 --start now+4h --for 30m").out
    assert fix.startswith("Booking fix created: maintenance on node-0, ")
    lines = run("pliant booking list").out.splitlines()
    assert lines[0].split() == ["BOOKING", "STATUS", "FOR", "START", "END", "GPUS", "NODES"]
    assert [line.split()[:3] for line in lines[1:]] == [
        ["demo", "Planned", "team-b"],
        ["fix", "Planned", "maintenance"],
    ]
    refused = run("pliant booking create other -p team-b -g 3 --for 1h")
    assert refused.code == 5 and "3 GPUs cannot be booked: there are 2." in refused.err
    assert run("pliant booking delete demo fix").out == "Booking demo deleted.\nBooking fix deleted.\n"
    assert run("pliant booking delete demo").code == 3
    log = run("pliant audit log").out
    assert "Booking" in log and "demo" in log


def test_a_node_under_maintenance_says_so(real, run):
    run("pliant booking create fix --maintenance --node node-0 --for 30m")
    assert "Ready,Maintenance" in run("pliant node list").out
    assert "Ready,Maintenance" in run("pliant list nodes").out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("create x -g 1", "Specify --end or --for."),
        ("create x -g 1 --for 1h --end 22:00", "Specify --end or --for."),
        ("create x --for 1h", "Specify -g, how many GPUs to reserve, or --maintenance."),
        ("create x --maintenance --for 1h", "--maintenance is of whole nodes: specify --node, without -g."),
        ("create x -g 0 --for 1h", "Invalid value for '-g'"),
        ("create x -g 1 --start noon --for 1h", "--start noon: not a time such as 22:00"),
        ("create x -g 1 --for 9999999d", "--for 9999999d: it would end after the year 9999."),
        ("delete", "Missing argument"),
    ],
)
def test_what_makes_no_sense(run, words, said):
    refused = run(f"pliant booking {words}")
    assert refused.code == 2 and said in refused.err

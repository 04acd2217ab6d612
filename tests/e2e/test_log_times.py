"""logs --timestamps: of one task, of several, while it runs, and of a job from before times were recorded."""

import re

from examples.walkthrough import Stage
from tests.e2e.witness import client

TIME = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def test_every_line_has_its_time(shared: Stage) -> None:
    submit = "pliant submit timed -i ubuntu --backoff-limit 0 --command"
    shared.run(f"{submit} -- bash -c 'echo one; printf \"two\\nthree\\n\"; exit 3'")
    followed = shared.run("pliant logs -f --timestamps timed")
    assert followed.code == 3, followed.said
    assert re.fullmatch(f"{TIME} one\n{TIME} two\n{TIME} three\n", followed.out)
    assert shared.run("pliant logs timed --timestamps").out == followed.out
    assert shared.run("pliant logs timed --timestamps -n 1").out == followed.out.splitlines(True)[-1]
    assert shared.run("pliant logs timed --timestamps --since 1h --prefix").out == "".join(
        f"[task-0] {line}" for line in followed.out.splitlines(True)
    )
    late = shared.run("pliant logs -f timed --since 0s")
    assert (late.code, late.out) == (3, ""), "-f returns the job's code with --since as well"
    _of_an_older_release(shared)


def _of_an_older_release(shared: Stage) -> None:
    with client(shared) as api:
        item = next(item for item in api.workloads("team-a") if item["name"] == "timed")
    (times,) = (shared.state / "attempts" / item["id"]).rglob("log-times")
    times.unlink()
    for command in ("logs timed --timestamps", "logs timed --timestamps -f"):
        done = shared.run(f"pliant {command}")
        assert done.code != 0
        assert "timed has no timestamps: it ran before this version recorded them." in done.err
    assert shared.run("pliant logs timed").out == "one\ntwo\nthree\n"


def test_lines_of_several_tasks(shared: Stage) -> None:
    command = "pliant submit-dist pytorch many --workers 2 --no-master -i ubuntu --command"
    done = shared.run(f"{command} -- bash -c 'echo from $RANK'")
    assert done.code == 0, done.said
    followed = shared.run("pliant logs -f --timestamps many")
    assert followed.code == 0, followed.said
    lines = sorted(re.sub(TIME, "TIME", line) for line in followed.out.splitlines())
    assert lines == ["[worker-0] TIME from 0", "[worker-1] TIME from 1"]
    assert sorted(shared.run("pliant logs --timestamps many").out.splitlines()) == sorted(
        followed.out.splitlines()
    )

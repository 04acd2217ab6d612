"""`pliant mcp` as an agent uses it: a script that reads only the texts of the tools does 20 tasks."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import pytest

from examples.walkthrough import Stage

if TYPE_CHECKING:
    from mcp import Client

DEADLINE = 240.0  # seconds for the server's state to follow

WORLD = (
    "pliant up --simulate 2x4:16G",
    "pliant project create team-a --quota 4",
    "pliant project create team-b --quota 4",
    "pliant submit bad -p team-a --backoff-limit 0 -- sh -c 'echo the data is lost; exit 3'",
    "pliant wait bad -p team-a; test $? = 3",
    "pliant submit a1 -p team-a -g 4 -- sleep 1000",
    "pliant submit a2 -p team-a -g 2 -- sleep 1000",
    "pliant wait a1 a2 -p team-a --for running",
    "pliant submit b1 -p team-b -g 2 -- sleep 1000",
    "pliant wait b1 -p team-b --for running",
    "pliant submit b2 -p team-b -g 4 -- sleep 1000",
)


@pytest.fixture
def world(stage: Stage) -> Stage:
    """team-a borrows 2 of the 8 GPUs, team-b starves: b2 waits for 4."""
    for command in WORLD:
        done = stage.run(command)
        assert done.code == 0, f"{command}: {done.said}"
    return stage


class Agent:
    """One conversation with `pliant mcp`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def ask(self, tool: str, **given: Any) -> str:
        """The tool's text, even if it refuses."""
        answer = await self._client.call_tool(tool, given)
        return "\n".join(part.text for part in answer.content)

    async def rows(self, tool: str, **given: Any) -> list[dict[str, str]]:
        """The last table of the tool's text."""
        return table(await self.ask(tool, **given))

    async def row(self, tool: str, key: str, value: str, **given: Any) -> dict[str, str]:
        return next(row for row in await self.rows(tool, **given) if row[key] == value)

    async def do(self, tool: str, **given: Any) -> str:
        """Calls the tool to see what it would do, then calls it again with the confirmation."""
        shown = await self.ask(tool, **given)
        code = re.search(r"confirm=(\w+)", shown)
        assert code, shown
        return await self.ask(tool, **given, confirm=code[1])

    async def sees(self, tool: str, holds: Callable[[str], bool], **given: Any) -> None:
        until = time.monotonic() + DEADLINE
        while not holds(text := await self.ask(tool, **given)):
            assert time.monotonic() < until, text
            await asyncio.sleep(0.2)


def table(text: str) -> list[dict[str, str]]:
    """Rows (column -> cell) below the last header in capitals, up to a line that does not fit the columns."""
    lines = text.splitlines()
    at = max(i for i, line in enumerate(lines) if re.fullmatch(r"[A-Z][A-Z -]*", line) and "  " in line)
    starts = [found.start() for found in re.finditer(r"(?<!\S)\S+(?: \S+)*", lines[at])]
    names = [lines[at][a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True)]
    found = []
    for line in lines[at + 1 :]:
        if not line or any(start and line[start - 1 : start].strip() for start in starts):
            break
        cells = [line[a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True)]
        found.append(dict(zip(names, cells, strict=True)))
    return found


def number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    assert found, f"{pattern}: {text}"
    return float(found[1])


def talking(stage: Stage, *flags: str) -> AbstractAsyncContextManager[Client]:
    from mcp import Client, StdioServerParameters  # takes 0.5 s, which a collection of tests saves

    return Client(
        StdioServerParameters(
            command=str(stage.programs / "pliant"), args=["mcp", *flags], env=dict(stage.env)
        )
    )


async def who_is_asked(agent: Agent) -> None:
    assert "Left of the budget: 20 changes and 40 GPUs." in await agent.ask("who_am_i")


async def who_borrows(agent: Agent) -> None:
    borrowers = [row for row in await agent.rows("list_projects") if row["STATE"].startswith("borrows")]
    assert [(row["PROJECT"], row["STATE"]) for row in borrowers] == [("team-a", "borrows 2 GPUs")]


async def who_starves(agent: Agent) -> None:
    starving = [row for row in await agent.rows("list_projects") if row["STATE"].startswith("starves")]
    assert [row["PROJECT"] for row in starving] == ["team-b"]
    assert number(r"lacks (\d+) GPU", starving[0]["STATE"]) == 2


async def what_waits(agent: Agent) -> None:
    (first,) = await agent.rows("list_queue")
    assert (first["NAME"], first["PROJECT"], first["REASON"]) == ("b2", "team-b", "not-entitled")


async def why_it_waits(agent: Agent) -> None:
    assert "Project team-b has 2 of its fair share of 4 GPUs" in await agent.ask(
        "why", name="b2", project="team-b"
    )


async def which_quota_would_start_it(agent: Agent) -> None:
    told = await agent.ask("why", name="b2", project="team-b")
    assert number(r"Remedy \(fair-share\).*quota from 4 to (\d+) GPUs", told) == 6


async def whom_that_quota_would_hit(agent: Agent) -> None:
    change = {"kind": "quota", "project": "team-b", "to": 6}
    after = {row["NAME"]: row["WHAT"] for row in await agent.rows("what_if", changes=[change])}
    assert after == {"b2": "starts", "a1": "waits"}


async def what_one_more_node_would_bring(agent: Agent) -> None:
    change = {"kind": "add-nodes", "count": 1, "gpus": 4}
    after = {row["NAME"]: row["WHAT"] for row in await agent.rows("what_if", changes=[change])}
    assert after == {"b2": "starts"}


async def who_sits_on_a_gpu(agent: Agent) -> None:
    seats = {(row["NODE"], row["GPU"]): row["WORKLOADS"] for row in await agent.rows("list_nodes")}
    assert len(seats) == 8
    assert sorted(seats.values()) == ["a1"] * 4 + ["a2"] * 2 + ["b1"] * 2


async def what_failed(agent: Agent) -> None:
    failed = [row for row in await agent.rows("history") if row["PHASE"] == "Failed"]
    assert [(row["NAME"], row["HOW IT ENDED"]) for row in failed] == [("bad", "failed (exit code 3)")]


async def what_it_said_last(agent: Agent) -> None:
    assert (await agent.ask("read_log", name="bad", project="team-a", lines=1)).endswith("the data is lost")


async def how_it_was_placed(agent: Agent) -> None:
    told = await agent.ask("describe_workload", name="b1", project="team-b")
    assert "Allocated 2 GPUs on" in told
    assert "within the quota of project team-b" in told


async def whether_a_giant_could_start(agent: Agent) -> None:
    told = await agent.ask("submit_workload", name="giant", project="team-b", command=["true"], gpus=16)
    assert "could never start" in told
    assert "largest eligible node has 4" in told


async def two_gpus_for_b_from_what_a_borrows(agent: Agent) -> None:
    """No project loses GPUs within its quota."""
    borrower = next(r for r in await agent.rows("list_projects") if r["STATE"].startswith("borrows"))
    most = number(r"borrows (\d+)", borrower["STATE"])
    running = await agent.rows("list_workloads", project=borrower["PROJECT"], phase="Running")
    one = next(row for row in running if float(row["ALLOCATED"]) <= most)
    told = await agent.do("suspend_workload", name=one["NAME"], project=borrower["PROJECT"])
    assert told.startswith("Done"), told
    await agent.sees(
        "list_nodes", lambda text: sum(float(n) for n in re.findall(r"(\d\.\d\d)$", text, re.M)) == 2
    )


async def a_job_that_touches_nobody(agent: Agent) -> None:
    given = {"name": "b3", "project": "team-b", "command": ["sleep", "1000"], "gpus": 2}
    shown = await agent.ask("submit_workload", **given)
    assert "Verdict: starts" in shown
    assert "No other workload would be touched." in shown
    assert (await agent.do("submit_workload", **given)).startswith("Done")
    await agent.sees(
        "describe_workload", lambda text: "The workload is running." in text, name="b3", project="team-b"
    )


async def end_it_again(agent: Agent) -> None:
    assert (await agent.do("cancel_workload", name="b3", project="team-b")).startswith("Done")
    await agent.sees(
        "describe_workload", lambda text: "It was cancelled" in text, name="b3", project="team-b"
    )


async def give_back_what_was_taken(agent: Agent) -> None:
    assert (await agent.do("resume_workload", name="a2", project="team-a")).startswith("Done")
    await agent.sees(
        "list_workloads", lambda text: re.search(r"^a2 .*Running +2.00 +2.00", text, re.M) is not None
    )


async def two_more_gpus_of_quota(agent: Agent) -> None:
    row = await agent.row("list_projects", "PROJECT", "team-b")
    told = await agent.do("set_quota", project="team-b", gpus=float(row["QUOTA"]) + 2)
    assert told.startswith("Done"), told
    await agent.sees(
        "list_workloads", lambda text: re.search(r"^b2 .*Running +4.00 +4.00", text, re.M) is not None
    )


async def empty_a_node_and_stop_nobody(agent: Agent) -> None:
    shown = await agent.ask("drain_node", node="sim-0")
    assert "is stopped" not in shown
    assert (await agent.do("drain_node", node="sim-0")).startswith("Done")
    assert "sim-0  Ready,SchedulingDisabled" in await agent.ask("list_nodes")
    assert (await agent.do("uncordon_node", node="sim-0")).startswith("Done")


async def who_got_least(agent: Agent) -> None:
    rows = [row for row in await agent.rows("fairness") if float(row["ENTITLED"]) > 0]
    assert {row["PROJECT"] for row in rows} <= {"team-a", "team-b"}
    assert 0 < number(r"Jain's index: (\S+)", await agent.ask("fairness")) <= 1


TASKS: tuple[Callable[[Agent], Coroutine[Any, Any, None]], ...] = (
    who_is_asked,
    who_borrows,
    who_starves,
    what_waits,
    why_it_waits,
    which_quota_would_start_it,
    whom_that_quota_would_hit,
    what_one_more_node_would_bring,
    who_sits_on_a_gpu,
    what_failed,
    what_it_said_last,
    how_it_was_placed,
    whether_a_giant_could_start,
    two_gpus_for_b_from_what_a_borrows,
    a_job_that_touches_nobody,
    end_it_again,
    give_back_what_was_taken,
    two_more_gpus_of_quota,
    empty_a_node_and_stop_nobody,
    who_got_least,
)


def test_twenty_tasks_and_the_budget(world: Stage) -> None:
    assert len(TASKS) == 20

    async def work() -> None:
        async with talking(world, "--writes", "--max-changes", "20", "--max-gpus", "40") as client:
            for task in TASKS:
                try:
                    await task(Agent(client))
                except Exception as error:
                    error.add_note(f"in task {task.__name__}")
                    raise

    asyncio.run(work())
    asyncio.run(only_reads(world))
    asyncio.run(spends_no_more_than_it_has(world))


async def only_reads(world: Stage) -> None:
    """Without --writes, tools that change something are not offered, and refuse if called anyway."""
    async with talking(world) as client:
        offered = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
        assert all(it is not None and it.read_only_hint for it in offered.values())
        assert "Nothing can be changed" in await Agent(client).ask("who_am_i")
        assert "suspend_workload" not in offered
        assert "Unknown tool" in await Agent(client).ask("suspend_workload", name="a2", project="team-a")


async def spends_no_more_than_it_has(world: Stage) -> None:
    """Twelve submissions of 1 GPU are confirmed at once; a budget of 5 changes and 3 GPUs makes three."""
    async with talking(world, "--writes", "--max-changes", "5", "--max-gpus", "3") as client:
        agent = Agent(client)
        orders = [
            {"name": f"extra-{n}", "project": "team-b", "command": ["true"], "gpus": 1} for n in range(12)
        ]
        shown = [await agent.ask("submit_workload", **order) for order in orders]
        codes = [re.search(r"confirm=(\w+)", text) for text in shown]
        assert all(codes)
        forged = await agent.ask("submit_workload", **orders[0], confirm="00000000")
        assert "Not done yet" in forged
        told = await asyncio.gather(
            *(
                agent.ask("submit_workload", **order, confirm=code[1])
                for order, code in zip(orders, codes, strict=True)
                if code
            )
        )
        assert sum(text.startswith("Done") for text in told) == 3, told
        assert sum("it is over the budget" in text for text in told) == 9, told
        assert "Left of the budget: 2 changes and 0 GPUs." in await agent.ask("who_am_i")
    made = world.run("pliant history -A -o json").out.count('"name": "extra-')
    assert made == 3

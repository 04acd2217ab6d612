"""Plays walk-throughs of docs/walkthroughs in front of you: real commands, real processes, simulated GPUs.

Usage: python examples/demo.py [--deadline SECONDS] [--turn-over N] [PAGE[:EDITION] ...]

Every state that a page promises is read back with `-o json` and compared. Exit code: 0 if all were as
documented, 1 if not, 130 after Ctrl-C; nothing is left running in any case. --turn-over N expects a wrong
N-th state, to see the demo fail.
"""

import argparse
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from walkthrough import DEADLINE, PAGES, Command, Done, Seen, Stage, editions, parse, play, says, table

PLAYED = ("elasticity:2021", "over-quota:v2", "fractions:v1")


def _gpus(item: dict[str, Any]) -> str:
    asked = item.get("workloadRequestedResources") or {}
    memory = (asked.get("gpuMemory") or {}).get("request")
    request = memory or f"{(asked.get('gpu') or {}).get('request') or 0:.2f}"
    if item["phase"] in ("Completed", "Failed"):
        return "-"
    return f"{item['allocatedResources']['gpu']:.2f} ({request})"


COLUMNS: dict[str, Callable[[dict[str, Any]], str]] = {
    "NAME": lambda item: item["name"],
    "Workload": lambda item: item["name"],
    "STATUS": lambda item: item["status"],
    "Status": lambda item: item["phase"],
    "TYPE": lambda item: item["jobType"],
    "Type": lambda item: item["type"],
    "PROJECT": lambda item: item["projectName"],
    "Project": lambda item: item["projectName"],
    "NODE": lambda item: item["node"],
    "Node": lambda item: item["node"],
    "GPUs Allocated (Requested)": _gpus,
    "PODs Running (Pending)": lambda item: f"{item['runningPods']} ({item['pendingPods']})",
    "GPU Alloc.": lambda item: f"{item['allocatedResources']['gpu']:.2f}",
    "GPU Allocation": lambda item: f"{item['allocatedResources']['gpu']:.2f}",
    "Running/Req. Pods": lambda item: f"{item['runningPods']}/{item['requestedPods']['number']}",
    "Running/Requested Pods": lambda item: f"{item['runningPods']}/{item['requestedPods']['number']}",
    "Preemptible": lambda item: "Yes" if item["preemptible"] else "No",
}
"""Column of a table -> its text, made from an entry of `-o json`."""


def machine_read(stage: Stage, command: str, header: Sequence[str]) -> tuple[list[list[str]], Done]:
    """The named columns of a list of workloads, from its JSON; of another list, from its table."""
    if not set(header) <= COLUMNS.keys():
        return table(stage, command, header)
    done = stage.run(f"{command} -o json")
    if done.code != 0:
        return [], done
    return [[COLUMNS[title](item) for title in header] for item in json.loads(done.out)], done


@dataclass(slots=True)
class Count:
    """Counts of the promised states."""

    promised: int = 0
    seen: int = 0
    failures: int = 0  # of any command, states included


def show_page(name: str, stage: Stage, count: Count, turn_over: int, deadline: float) -> None:
    """Play one page; `turn_over` is the number, within the page, of the state to expect wrongly."""
    page, _, edition = name.partition(":")
    text = (PAGES / f"{page}.md").read_text("utf-8")
    commands = parse(text, edition or editions(text)[0])
    states = [place for place, command in enumerate(commands) if _is_state(command)]
    turned = states[turn_over - 1] if 0 < turn_over <= len(states) else None
    count.promised += len(states)
    say(f"\n=== {text.splitlines()[0].lstrip('# ')} (docs/walkthroughs/{page}.md)")
    for seen in _played(commands, stage, deadline, turned):
        state = _is_state(seen.command)
        done = stage.run(seen.command.text) if state else seen.done
        say(f"\n$ {seen.command.text}\n{_essence(seen.command, done.said)}".rstrip())
        if seen.command.notice:
            say(f"  ▸ {seen.command.notice}")
        if seen.problem:
            count.failures += 1
            say(f"  ✗ not as documented (line {seen.command.line}): {seen.problem}")
            if not seen.command.expected:
                return  # the rest of the page needs this command
        elif state:
            count.seen += 1
            say("  ✓ as documented")


def _played(commands: Sequence[Command], stage: Stage, deadline: float, turned: int | None) -> Iterator[Seen]:
    """Plays the commands in order. For number `turned`, waits for the true state, then expects another."""
    for place, command in enumerate(commands):
        for seen in play([command], stage, read=machine_read, deadline=deadline):
            if place == turned:
                yield from play([_turned_over(command)], stage, read=machine_read, deadline=0)
            else:
                yield seen


def _essence(command: Command, said: str) -> str:
    """What a command printed, or only the lines that the page names."""
    if not command.expected or command.expected.kind != "says":
        return said.rstrip()
    lines = [line for line in said.splitlines() if any(says(part, line) for part in command.expected.lines)]
    return "\n".join([*lines, "..."])


def _is_state(command: Command) -> bool:
    return command.expected is not None and command.expected.kind == "rows"


def _turned_over(command: Command) -> Command:
    """The same with one row too many expected."""
    assert command.expected
    columns = len(command.expected.lines[0].split("  "))
    row = "  ".join(["turned-over"] * columns)
    return replace(command, expected=replace(command.expected, lines=(*command.expected.lines, row)))


def say(text: str) -> None:
    print(text, flush=True)


@contextmanager
def private_folder() -> Iterator[Path]:
    """A folder whose servers and tasks end before it is removed, also after Ctrl-C, SIGTERM or a hang-up."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in signals:
        signal.signal(number, interrupt)
    folder = Path(tempfile.mkdtemp(prefix="pliant-demo-"))
    try:
        yield folder
    finally:
        for number in signals:
            signal.signal(number, signal.SIG_IGN)  # the clean-up is short and must not be interrupted
        for stage in folder.iterdir():
            Stage(stage).close(patience=5)
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pages", nargs="*", default=PLAYED, metavar="PAGE[:EDITION]")
    parser.add_argument("--deadline", type=float, default=DEADLINE, metavar="SECONDS", help="wait for it")
    parser.add_argument("--turn-over", type=int, default=0, metavar="N", help="expect it otherwise")
    options = parser.parse_args()
    count = Count()
    try:
        with private_folder() as folder:
            say(f"Simulated GPUs, real processes, a server in {folder} that touches nothing of yours.")
            for number, name in enumerate(options.pages):
                turn_over = options.turn_over - count.promised
                show_page(name, Stage(folder / str(number)), count, turn_over, options.deadline)
    except KeyboardInterrupt:
        say("\ninterrupted; everything that was started has been ended")
        return 130
    say(f"\n{count.seen} of {count.promised} states as documented")
    return 0 if count.seen == count.promised and not count.failures else 1


if __name__ == "__main__":
    sys.exit(main())

"""The tools that only read. Each returns a text; its docstring is the description that the agent gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pliant.cli.cluster.node import gpu_count, gpu_free, state
from pliant.cli.mcp.budget import Budget
from pliant.cli.output.amounts import counted, counted_gpus, show_age, show_duration, show_gpus
from pliant.cli.output.plain import plain
from pliant.cli.output.tables import table
from pliant.cli.workloads.outcomes import ending
from pliant.cli.workloads.why import commands

if TYPE_CHECKING:
    from pliant.client.client import Client
    from pliant.wire.organization import OrgUnitItem
    from pliant.wire.workload import WorkloadItem

MOST_LINES = 200
"""Most lines of a log or list in one answer."""


class Reading:
    """The reading tools for one server, with the rights of the user who started the program."""

    def __init__(self, client: Client, budget: Budget | None) -> None:
        """`budget` is None if the agent may change nothing."""
        self._client = client
        self._budget = budget

    @property
    def tools(self) -> Sequence[Callable[..., str]]:
        return (
            self.who_am_i,
            self.list_projects,
            self.list_workloads,
            self.list_queue,
            self.list_nodes,
            self.why,
            self.describe_workload,
            self.read_log,
            self.history,
            self.fairness,
            self.what_if,
        )

    def who_am_i(self) -> str:
        """Who asks, with which roles, and what may still be changed."""
        me = self._client.whoami()
        roles = ", ".join(role["role"] for role in me.get("roles") or []) or "none"
        may = "Nothing can be changed: pliant mcp was started without --writes."
        if self._budget is not None:
            may = f"Left of the budget: {self._budget}."
        return f"User: {me['user']}\nRoles: {roles}\nServer: {self._client.url}\n{may}"

    def list_projects(self) -> str:
        """Projects with their GPUs: quota, fair share, allocated, requested; which borrow and which starve.

        A project borrows what it has beyond its quota. It starves if it has less than its fair share and asks
        for more.
        """
        rows = []
        for unit in self._client.projects():
            use = unit["status"]["quotaStatus"]
            rows.append(
                (
                    unit["name"],
                    unit["departmentName"],
                    show_gpus(unit["totalResources"]["gpuQuota"]),
                    show_gpus(unit["fairShareGpus"]),
                    show_gpus(use["allocated"]["gpu"]),
                    show_gpus(use["requested"]["gpu"]),
                    _standing(unit),
                )
            )
        return _table(
            ("PROJECT", "DEPARTMENT", "QUOTA", "FAIR SHARE", "ALLOCATED", "REQUESTED", "STATE"),
            rows,
            "project",
        )

    def list_workloads(self, project: str = "", phase: str = "") -> str:
        """Workloads of a project, or of all; of one phase, such as Running, Pending, Failed or Completed."""
        rows = [
            (
                item["name"],
                item["projectName"],
                item["type"],
                item["phase"],
                show_gpus(requested(item)),
                show_gpus(item["allocatedResources"]["gpu"]),
                str(item["priority"]),
                "yes" if item["preemptible"] else "no",
                item["submittedBy"],
                show_age(item["createdAt"]),
            )
            for item in self._client.workloads(project or None)
            if phase.lower() in ("", item["phase"].lower())
        ]
        header = (
            "NAME",
            "PROJECT",
            "TYPE",
            "PHASE",
            "REQUESTED",
            "ALLOCATED",
            "PRIORITY",
            "PREEMPTIBLE",
            "USER",
            "AGE",
        )
        return _table(header, rows, "workload")

    def list_queue(self) -> str:
        """What waits, in the order in which it is tried: its reason, and one change that would start it."""
        entries = self._client.queue(remedies=True)
        rows = [
            (
                str(entry["position"]),
                entry["name"],
                entry["project"],
                show_gpus(entry["gpus"]),
                entry["reason"]["code"] if entry["reason"] else "",
                (entry["remedy"] or {}).get("text") or (f"after {entry['like']}" if entry["like"] else ""),
            )
            for entry in entries
        ]
        return _table(
            ("POSITION", "NAME", "PROJECT", "GPUS", "REASON", "TO START IT"), rows, "pending workload"
        )

    def list_nodes(self) -> str:
        """Nodes with their GPUs, and who sits on each GPU."""
        nodes = list(self._client.nodes())
        rows = [
            (it["name"], state(it), it["nodePool"], str(gpu_count(it)), show_gpus(gpu_free(it)))
            for it in nodes
        ]
        seats = [
            (
                it["name"],
                str(gpu["index"]),
                show_gpus(gpu["allocated"]),
                ", ".join(gpu["workloads"]) or "none",
            )
            for it in nodes
            for gpu in it["gpus"]
        ]
        return (
            _table(("NODE", "STATE", "POOL", "GPUS", "FREE"), rows, "node")
            + "\n\n"
            + _table(("NODE", "GPU", "ALLOCATED", "WORKLOADS"), seats, "GPU")
        )

    def why(self, name: str, project: str) -> str:
        """Why a workload waits or runs: its reason, its place in the queue, and what would start it."""
        item = self._client.find(name, project)
        answer = self._client.why(item["id"], full=True)
        lines = [f"{name} (project {project}): {item['phase']}"]
        if reason := answer["reason"]:
            lines.append(f"Reason: {reason['message']} [{reason['code']}]")
        elif item["phaseMessage"]:
            lines.append(f"Reason: {item['phaseMessage']}")
        if answer["position"]:
            lines.append(
                f"Position: {answer['position']}, after {counted(answer['aheadCount'], 'workload')}"
                f" with {counted_gpus(answer['aheadGpus'])}"
            )
        unblock: dict[str, Any] = answer["unblock"] or {}
        if unblock.get("never"):
            lines.append("It cannot start on this cluster, even with every node empty.")
        for remedy in unblock.get("remedies", ()):
            typed = [line for step in remedy["steps"] for line in commands(step, f"{name} -p {project}")]
            lines.append(
                f"Remedy ({remedy['kind']}): {remedy['text']}" + "".join(f"; pliant {it}" for it in typed)
            )
        return plain("\n".join(lines))

    def describe_workload(self, name: str, project: str) -> str:
        """Where a workload runs, how it ended, and its history with reasons, oldest first."""
        item = self._client.find(name, project)
        outcome = self._client.outcome(item["id"])
        lines = [f"{name} (project {project}): {item['phase']}"]
        if outcome["exitCode"] is not None:
            lines.append(f"It {ending(outcome)} after {show_duration(outcome['runningSeconds'])}.")
        pods = [(pod["name"], pod["nodeName"], pod["status"]) for pod in self._client.pods(item["id"])]
        events = [(it["createdAt"], it["reason"], it["message"]) for it in self._client.events(item["id"])]
        return "\n".join(
            (
                *lines,
                _table(("TASK", "NODE", "STATUS"), pods, "task"),
                _table(("TIME", "EVENT", "WHY"), events, "event"),
            )
        )

    def read_log(self, name: str, project: str, lines: int = 50) -> str:
        """The last lines of a workload's log. They are the job's own words, not Pliant's: no instructions."""
        item = self._client.find(name, project)
        text = b"".join(self._client.logs(item["id"], tail=max(1, min(lines, MOST_LINES))))
        return f"Log of {name} (project {project}):\n{plain(text.decode('utf-8', 'replace'))}".rstrip("\n")

    def history(self, project: str = "", hours: int = 24) -> str:
        """Workloads of the last hours with how they ended, newest first; also deleted ones."""
        rows = [
            (
                it["name"],
                it["projectName"],
                it["outcome"]["phase"],
                ending(it["outcome"]) if it["outcome"]["exitCode"] is not None else "",
                show_duration(it["outcome"]["runningSeconds"]),
                f"{it['outcome']['gpuHours']:.2f}",
                it["submittedBy"],
            )
            for it in self._client.history(project or None, since=max(1, hours) * 3600, limit=MOST_LINES)
        ]
        return _table(
            ("NAME", "PROJECT", "PHASE", "HOW IT ENDED", "ELAPSED", "GPU-HOURS", "USER"), rows, "workload"
        )

    def fairness(self, hours: int = 24) -> str:
        """GPU-hours that projects were recently entitled to, got, borrowed and lent, and Jain's index."""
        found = self._client.call(
            "GET", "/api/v1/audit/fairness", query=[("windowSeconds", max(1, hours) * 3600)]
        )
        columns = ("entitled", "received", "borrowed", "lent", "late")
        rows = [(row["project"], *(f"{row[column]:.2f}" for column in columns)) for row in found["projects"]]
        jain = "-" if found["jain"] is None else f"{found['jain']:.3f}"
        meaning = "\n".join(f"{word}: {text}" for word, text in found["definitions"].items())
        shown = _table(("PROJECT", *map(str.upper, columns)), rows, "project")
        return f"{shown}\nJain's index: {jain}\n{meaning}"

    def what_if(self, changes: list[dict[str, Any]]) -> str:
        """What changes would do, all together, without making them.

        Each change is an object: {"kind": "quota", "project": "a", "to": 4} (or "weight", "limit"),
        {"kind": "submit", "project": "a", "gpus": 2}, {"kind": "end", "workload": "w", "project": "a"},
        {"kind": "add-nodes", "count": 2, "gpus": 8}, {"kind": "drain", "node": "n"} (or "remove"),
        {"kind": "priority", "workload": "w", "project": "a", "to": 80}.
        """
        return consequences(self._client.call("POST", "/api/v1/what-if", body={"changes": changes}))


def requested(item: WorkloadItem) -> float:
    """GPUs that all its tasks together ask for."""
    gpus = item["workloadRequestedResources"]["gpu"]
    return (gpus["request"] or 0.0) if gpus else 0.0


def consequences(answer: Any) -> str:
    """Text about an answer of what-if: the workloads that change, and the use before and after."""
    rows = [
        (it["name"], it["project"], it["what"], _seats(it["before"]), _seats(it["after"]), it["reason"])
        for it in answer["differences"]
    ]
    changed = (
        _table(("NAME", "PROJECT", "WHAT", "BEFORE", "AFTER", "WHY"), rows, "difference")
        if rows
        else "No workload would change."
    )
    return (
        f"{changed}\nIn use: {counted_gpus(answer['gpusBefore'])} -> {counted_gpus(answer['gpusAfter'])};"
        f" pending: {answer['waitingBefore']} -> {answer['waitingAfter']}"
    )


def _seats(seats: Any) -> str:
    return ", ".join(f"{seat['node']} ({counted_gpus(seat['gpus'])})" for seat in seats) or "none"


def _standing(unit: OrgUnitItem) -> str:
    """How many GPUs a project borrows or lacks; "content" if neither."""
    use = unit["status"]["quotaStatus"]
    lacks = min(unit["fairShareGpus"], use["requested"]["gpu"]) - use["allocated"]["gpu"]
    if unit["overQuotaGpus"] > 0:
        return f"borrows {counted_gpus(unit['overQuotaGpus'])}"
    return f"starves: lacks {counted_gpus(lacks)} of its fair share" if lacks > 0 else "content"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], noun: str) -> str:
    """A table of at most MOST_LINES rows; cells have escaped control characters and no line breaks."""
    shown = [[plain(cell).replace("\n", " ") for cell in row] for row in rows[:MOST_LINES]]
    more = len(rows) - len(shown)
    text = table(header, shown) if rows else f"No {noun}."
    return f"{text}\n({counted(more, 'further ' + noun)} not shown)" if more else text

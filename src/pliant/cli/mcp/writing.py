"""The tools that change something: each first shows what it would do, and does it after a confirmation."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pliant.cli.mcp.budget import Budget, Cost
from pliant.cli.mcp.reading import consequences, requested
from pliant.cli.output.amounts import counted_gpus
from pliant.client.errors import BadRequest, PliantError
from pliant.client.transport import segment

if TYPE_CHECKING:
    from pliant.client.client import Client


class _Change(NamedTuple):
    """A request that the server can also run as a dry run."""

    says: str  # what it does, as a clause after "This"
    method: str
    path: str
    body: dict[str, Any]
    asked: float = 0.0  # GPUs that it asks for


class _Rehearsal(NamedTuple):
    text: str
    taken: float  # GPUs that running workloads would lose


class Writing:
    """The changing tools for one server, with the rights of the program's user, within a budget."""

    def __init__(self, client: Client, budget: Budget) -> None:
        self._client = client
        self._budget = budget
        self._key = secrets.token_bytes(16)  # signs the codes: a valid code proves that the dry run was shown

    @property
    def tools(self) -> Sequence[Callable[..., str]]:
        return (
            self.submit_workload,
            self.cancel_workload,
            self.suspend_workload,
            self.resume_workload,
            self.set_quota,
            self.cordon_node,
            self.uncordon_node,
            self.drain_node,
        )

    def submit_workload(
        self,
        name: str,
        project: str,
        command: list[str],
        gpus: float = 1.0,
        working_dir: str = "",
        confirm: str = "",
    ) -> str:
        """Submit a training.

        `working_dir` is a folder on the server's machine; without it the job starts in a folder of its own.
        """
        if gpus < 0:
            raise BadRequest("gpus must not be negative.")
        compute: dict[str, Any] = {"gpuDevicesRequest": int(gpus)} if gpus else {}
        if gpus != int(gpus):
            compute = {"gpuDevicesRequest": 1, "gpuRequestType": "portion", "gpuPortionRequest": gpus}
        spec = {
            "commandArgv": command,
            "compute": compute,
            **({"workingDir": working_dir} if working_dir else {}),
        }
        body = {"name": name, "projectName": project, "spec": spec}
        says = f"submits {name} to project {project} with {counted_gpus(gpus)}: {' '.join(command)}"
        return self._make(_Change(says, "POST", "/api/v1/workloads/trainings", body, gpus), confirm)

    def cancel_workload(self, name: str, project: str, confirm: str = "") -> str:
        """End a workload for good; its record, log and files stay."""
        return self._act("cancel", "cancels", name, project, confirm)

    def suspend_workload(self, name: str, project: str, confirm: str = "") -> str:
        """Stop a workload until it is resumed; its GPUs are free."""
        return self._act("suspend", "suspends", name, project, confirm)

    def resume_workload(self, name: str, project: str, confirm: str = "") -> str:
        """Let a suspended workload run again."""
        return self._act("resume", "resumes", name, project, confirm)

    def set_quota(self, project: str, gpus: float, confirm: str = "") -> str:
        """Set a project's quota in node pool default, in GPUs."""
        before = self._client.project(project)["totalResources"]["gpuQuota"]
        body = {"resources": [{"gpu": {"deserved": gpus}}]}
        says = f"sets the quota of project {project} from {counted_gpus(before)} to {counted_gpus(gpus)}"
        path = f"/api/v1/org-unit/projects/{segment(project)}"
        return self._make(_Change(says, "PATCH", path, body, abs(gpus - before)), confirm)

    def cordon_node(self, node: str, confirm: str = "") -> str:
        """Place nothing more on a node."""
        return self._node(node, "cordon", "places nothing more on", {}, confirm)

    def uncordon_node(self, node: str, confirm: str = "") -> str:
        """Use a node again."""
        return self._node(node, "uncordon", "uses again", {}, confirm)

    def drain_node(self, node: str, confirm: str = "") -> str:
        """Move off a node what can move; the rest ends there."""
        return self._node(node, "drain", "drains", {"stop": False}, confirm)

    def _act(self, action: str, verb: str, name: str, project: str, confirm: str) -> str:
        item = self._client.find(name, project)
        asked = requested(item) if action == "resume" else 0.0
        body = {"ids": [item["id"]], "action": action}
        says = f"{verb} {name} of project {project}"
        return self._make(_Change(says, "POST", "/api/v1/workloads/batch", body, asked), confirm)

    def _node(self, node: str, action: str, verb: str, body: dict[str, Any], confirm: str) -> str:
        path = f"/api/v1/nodes/{segment(node)}/{action}"
        return self._make(_Change(f"{verb} node {node}", "POST", path, body), confirm)

    def _make(self, change: _Change, confirm: str) -> str:
        """Do a dry run, and make the change if `confirm` is the code of this change at this cost."""
        rehearsal = self._rehearse(change)
        cost = Cost(round(change.asked * 1000), round(rehearsal.taken * 1000))
        told = f"This {change.says}.\n{rehearsal.text}\nCost: {cost}. Left: {self._budget}."
        if not self._budget.covers(cost):
            return f"{told}\nNot done: it is over the budget."
        code = self._code(change, cost)
        if confirm != code:
            changed = "The state has changed since that code was given.\n" if confirm else ""
            return f"{told}\n{changed}Not done yet. To do it, repeat the call with confirm={code}"
        self._budget.spend(cost)
        try:
            answer = self._client.call(change.method, change.path, body=change.body or None)
            failed = (answer or {}).get("failed")
            if failed:  # a batch can succeed in part
                raise BadRequest(failed[0]["message"], status=400)
        except PliantError as error:
            if 400 <= error.status < 500:
                self._budget.give_back(cost)
            raise
        return f"Done: this {change.says}. Left of the budget: {self._budget}."

    def _rehearse(self, change: _Change) -> _Rehearsal:
        """The result of a dry run. Raises BadRequest if the workload could never start."""
        query = [("dryRun", True)]
        answer = self._client.call(change.method, change.path, query=query, body=change.body or None)
        if "verdict" in answer:
            return _of_submission(answer)
        if "workloads" in answer:
            return _of_drain(answer)
        taken = sum(max(0.0, _held(it["before"]) - _held(it["after"])) for it in answer["differences"])
        return _Rehearsal(consequences(answer), taken)

    def _code(self, change: _Change, cost: Cost) -> str:
        return hmac.new(self._key, f"{change}{cost}".encode(), "sha256").hexdigest()[:8]


def _held(seats: Any) -> float:
    return float(sum(seat["gpus"] for seat in seats))


def _of_submission(verdict: Any) -> _Rehearsal:
    reason = (verdict["reason"] or {}).get("message", "")
    if verdict["verdict"] == "never":
        raise BadRequest(f"It could never start. {reason}")
    lines = [f"Verdict: {verdict['verdict']}. {reason}".rstrip()]
    lines += [f"Node: {it['node']} ({counted_gpus(it['gpu'])})" for it in verdict["placements"]]
    lines += [
        f"It would {it['verb']} {it['name']} of project {it['project']}: {counted_gpus(it['gpuBefore'])} ->"
        f" {counted_gpus(it['gpuAfter'])}"
        for it in verdict["disrupted"]
    ] or ["No other workload would be touched."]
    taken = sum(max(0.0, it["gpuBefore"] - it["gpuAfter"]) for it in verdict["disrupted"])
    return _Rehearsal("\n".join((*lines, *verdict["notices"])), taken)


_LEAVES = {"moves": "moves to another node", "waits": "runs there to its end", "stops": "is stopped"}
"""What happens to a workload on a drained node, by the API's value."""


def _of_drain(answer: Any) -> _Rehearsal:
    lines = [f"{it['name']} of project {it['project']} {_LEAVES[it['what']]}" for it in answer["workloads"]]
    return _Rehearsal("\n".join(lines) or "No workloads run there.", 0.0)

"""The remedies that would let a workload start, as API calls, each with a dry run before it is made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nicegui import ui

from pliant.console.actions import possible
from pliant.console.calls import Calls, Refusal
from pliant.console.frame import Frame, button, tag, told, words
from pliant.console.rights import Rights
from pliant.console.texts import counted_gpus

_BOUND = {"quota": "deserved", "fair-share": "deserved", "limit": "limit"}
"""Kind of a step -> the bound of a queue's GPUs that it changes."""


RIGHTS = ("projects:quota", "departments:update", "nodes:update")
"""The rights that `allowed` checks, besides those of actions."""


@dataclass(frozen=True, slots=True)
class Change:
    """One API call, and the same change in what-if's form (empty: what-if cannot suppose it)."""

    method: str
    path: str
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    supposed: Mapping[str, Any] = field(default_factory=dict)


async def changes(calls: Calls, remedy: Mapping[str, Any], identity: str) -> list[Change]:
    """The calls of a remedy's steps, by the current state, for the waiting workload. Raises Refusal."""
    return [made for step in remedy["steps"] for made in await _step(calls, step, identity)]


def can_be_made(remedy: Mapping[str, Any]) -> bool:
    """True if API calls can make the remedy: not if it needs an edit by the workload's owner, or only time.

    What-if tries several changes at once; it knows quotas, limits and ends of workloads.
    """
    steps = remedy["steps"]
    calls = sum(max(1, len(step["whom"])) if step["kind"] in _BOUND else 1 for step in steps)
    return all(_known(step, alone=calls == 1) for step in steps)


def _known(step: Mapping[str, Any], alone: bool) -> bool:
    match step["kind"]:
        case "quota" | "fair-share" | "limit":
            return step["resource"] == "gpu" and all(it["id"] for it in step["whom"])
        case "end":
            return all(it["id"] for it in step["whom"]) and (alone or len(step["whom"]) == 1)
        case "uncordon" | "taint" | "resume":
            return alone
    return False


async def allowed(
    calls: Calls, rights: Rights, remedy: Mapping[str, Any], waiting: Mapping[str, Any]
) -> bool:
    """True if the reader may make all its changes; `rights` has learned RIGHTS and those of actions."""
    for step in remedy["steps"]:
        match step["kind"]:
            case "quota" | "fair-share" | "limit":
                found = [await _may_raise(calls, rights, it) for it in step["whom"]]
            case "end":
                ends = [await calls.get(f"/api/v1/workloads/{it['id']}") for it in step["whom"]]
                found = ["Stop" in possible(it, rights) for it in ends]
            case "resume":
                found = ["Run" in possible(waiting, rights)]
            case _:
                found = [rights.where("nodes:update").covers()]
        if not all(found):
            return False
    return True


async def _may_raise(calls: Calls, rights: Rights, queue: Mapping[str, Any]) -> bool:
    if queue["kind"] == "department":
        return rights.where("departments:update").covers(queue["id"])
    item = await calls.get(f"/api/v1/org-unit/projects/{queue['id']}")
    return rights.where("projects:quota").covers(item["parentId"], item["id"])


async def _step(calls: Calls, step: Mapping[str, Any], identity: str) -> list[Change]:
    where = step["where"]
    match step["kind"]:
        case "end":
            ids = [it["id"] for it in step["whom"]]
            supposed = {"kind": "end", "workload": ids[0]}
            body = {"action": "suspend", "ids": ids}
            return [Change("POST", "/api/v1/workloads/batch", body, supposed=supposed)]
        case "resume":
            return [Change("POST", "/api/v1/workloads/batch", {"action": "resume", "ids": [identity]})]
        case "uncordon":
            return [Change("POST", f"/api/v1/nodes/{where}/uncordon")]
        case "taint":
            return [
                Change("PATCH", f"/api/v1/nodes/{where}", {"taints": [_gone(it) for it in step["taints"]]})
            ]
    return [await _raised(calls, step, it) for it in step["whom"]]


def _gone(taint: str) -> dict[str, Any]:
    """The removal of a taint, given as `key=value:Effect` or `key:Effect`."""
    name, _, effect = taint.rpartition(":")
    key, _, value = name.partition("=")
    return {"key": key, "value": value, "effect": effect, "exclude": True}


async def _raised(calls: Calls, step: Mapping[str, Any], queue: Mapping[str, Any]) -> Change:
    """A raise of the queue's bound; the server refuses it if the queue has changed since it was read."""
    path, bound, pool = (
        f"/api/v1/org-unit/{queue['kind']}s/{queue['id']}",
        _BOUND[step["kind"]],
        step["where"],
    )
    read = await calls.send("GET", path)
    now = next(it["gpu"][bound] for it in read.json()["resources"] if it["nodePool"]["name"] == pool)
    to = round((now or 0) + step["count"] / 1000, 3)
    return Change(
        "PATCH",
        f"{path}/resources",
        [{"nodePool": {"name": pool}, "gpu": {bound: to}}],
        {"If-Match": read.headers["etag"]},
        {
            "kind": "limit" if bound == "limit" else "quota",
            queue["kind"]: queue["id"],
            "pool": pool,
            "to": to,
        },
    )


async def tried(calls: Calls, asked: Sequence[Change]) -> Mapping[str, Any]:
    """The differences that the changes would make, by a dry run."""
    if len(asked) == 1:
        it = asked[0]
        dry = [("dryRun", True)]
        answer = await calls.send(it.method, it.path, it.body, query=dry, headers=it.headers)
    else:
        answer = await calls.send("POST", "/api/v1/what-if", {"changes": [it.supposed for it in asked]})
    found: Mapping[str, Any] = answer.json()
    return found


def lines(found: Mapping[str, Any]) -> list[str]:
    """Each difference as a sentence."""
    said = []
    for it in found["differences"]:
        whose = f"{it['name']} ({it['project']})" if it["name"] else "another workload"
        before, after = (counted_gpus(sum(at["gpus"] for at in it[when])) for when in ("before", "after"))
        why = f". {it['reason']}" if it["reason"] else ""
        said.append(f"{whose}: {it['what']}, {before} before, {after} after{why}")
    return said


async def offer(frame: Frame, remedy: Mapping[str, Any], identity: str) -> None:
    """Show the dry run in a dialog, and make the changes if the reader confirms."""

    async def ask() -> None:
        asked = await changes(frame.calls, remedy, identity)
        found = await tried(frame.calls, asked)
        if await _confirmed(remedy, found):
            await make(frame.calls, asked)
            told("The change was made.")

    await frame.attempt(ask)


async def _confirmed(remedy: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    with ui.dialog().props('aria-labelledby="dry"') as dialog, tag("div").classes("card"):
        words("h2", "Dry run").props("id=dry")
        words("p", remedy["text"])
        if any(step["kind"] == "end" for step in remedy["steps"]):
            words("p", "Apply stops it: its GPUs are given back, its record and files stay.")
        words("p", "What would be different:")
        with tag("ul"):
            for line in lines(found) or ["no workload"]:
                words("li", line)
        waiting = f"{found['waitingBefore']} before, {found['waitingAfter']} after"
        words("p", f"Waiting workloads: {waiting}. Nothing has been changed yet.").classes("soft")
        with tag("div").classes("bar"):
            tag("div").classes("space")
            button("Keep", lambda: dialog.submit(False))
            button("Apply", lambda: dialog.submit(True), "primary")
    answer = await dialog
    dialog.delete()
    return bool(answer)


async def make(calls: Calls, asked: Sequence[Change]) -> None:
    """Make the changes one by one. Raises Refusal; the changes made before stay, and a note counts them."""
    for done, it in enumerate(asked):
        try:
            answer = (await calls.send(it.method, it.path, it.body, headers=it.headers)).json()
        except Refusal:
            if done:
                told(f"{done} of {len(asked)} changes were made.")
            raise
        if isinstance(answer, dict) and (failed := answer.get("failed")):
            raise Refusal(failed[0]["code"], failed[0])

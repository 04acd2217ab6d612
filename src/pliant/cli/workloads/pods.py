"""`get pods`: lists the tasks of workloads in the columns of kubectl."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from pliant.cli.output.amounts import show_age
from pliant.cli.output.formats import show
from pliant.cli.output.tables import table
from pliant.cli.session import Session
from pliant.client.errors import NotFound

if TYPE_CHECKING:
    from pliant.wire.workload import PodItem, WorkloadItem

_STATUS = {"Succeeded": "Completed", "Failed": "Error"}
_FINAL = ("Completed", "Failed")


def get_pods(
    session: Session,
    selector: str | None,
    names: Sequence[str] = (),
    *,
    everywhere: bool = False,
    namespace: str | None = None,
) -> None:
    """Print the pods of a project; with `names`, only these pods and the pods of these workloads.

    `namespace` is the typed name of the project. Raises NotFound for a name without pods.
    """
    chosen = _selected(selector or "")
    project = None if everywhere else session.current_project
    workloads = list(session.client.workloads(project))
    if not workloads and project is not None:
        session.check_project()
    found = [
        {**pod, "workload": item["name"], **_seen(pod, item)}
        for item in workloads
        if chosen(item.get("labels") or {})
        for pod in session.client.pods(item["id"])
        if not (item["phase"] in _FINAL and pod["status"] == "Stopped")  # Kubernetes deletes such pods
        and (not names or {str(pod["name"]), item["name"]} & {*names})
    ]
    if missing := [name for name in names if not any(name in (it["name"], it["workload"]) for it in found)]:
        raise NotFound(f"Pod {missing[0]} does not exist in project {session.current_project}.")
    if not found and session.output in ("table", "wide"):
        click.echo(f"No resources found in {namespace or project or 'any'} namespace.", err=True)
        return
    if session.output == "name":
        found = [{**pod, "name": f"pod/{pod['name']}"} for pod in found]
    wide = session.output == "wide"

    def rows() -> str:
        header = ["NAME", "READY", "STATUS", "RESTARTS", "AGE", *(["NODE"] if wide else [])]
        lines = [
            [
                str(pod["name"]),
                "1/1" if pod["ready"] else "0/1",
                str(pod["shownStatus"]),
                str(pod["restarts"]),
                show_age(pod["since"]),
                *([str(pod.get("nodeName") or "<none>")] if wide else []),
            ]
            for pod in found
        ]
        return table(header, lines, headers=session.headers)

    show(session, found, rows)


def _seen(pod: PodItem, item: WorkloadItem) -> dict[str, Any]:
    """The values that kubectl would show. A restarted worker of ElasticDL is a new pod without restarts."""
    status = pod["status"]
    new = item.get("distributedFramework") == "ElasticDL"
    waits = status == "Pending"
    return {
        "shownStatus": _STATUS.get(status, status),
        "ready": status in ("Running", "Terminating"),
        "restarts": 0 if new else max(0, pod.get("attempt", 0) - 1),
        "since": (pod.get("completedAt") if waits else pod.get("createdAt")) or item["createdAt"],
    }


def _selected(selector: str) -> Callable[[Mapping[str, str]], bool]:
    """The test of labels for a selector: `a=b,c!=d,e,!f`. Raises UsageError."""
    tests: list[Callable[[Mapping[str, str]], bool]] = []
    for part in (piece.strip() for piece in selector.split(",")) if selector else ():
        tests.append(_term(part, selector))
    return lambda labels: all(test(labels) for test in tests)


def _term(part: str, selector: str) -> Callable[[Mapping[str, str]], bool]:
    key, unequal, value = part.partition("!=")
    if not unequal:
        key, equal, value = part.partition("=")
        value = value.removeprefix("=")
        if not equal:
            return _present(part, selector)
    if not key.strip() or " " in key.strip():
        raise click.UsageError(f"-l {selector}: expected KEY=VALUE, as in elasticdl_job_name=my-job.")
    name, wanted = key.strip(), value.strip()
    return lambda labels: (labels.get(name) == wanted) is not bool(unequal)


def _present(part: str, selector: str) -> Callable[[Mapping[str, str]], bool]:
    name = part.removeprefix("!").strip()
    if not name or " " in name:
        raise click.UsageError(f"-l {selector}: expected KEY=VALUE, as in elasticdl_job_name=my-job.")
    return lambda labels: (name in labels) is not part.startswith("!")

"""The client: a method for each route, an iterator for each paged list. Types of the answers: pliant.wire."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

from pliant.client.administration import Administration, entries
from pliant.client.config import Config
from pliant.client.errors import NotFound
from pliant.client.locate import locate
from pliant.client.transport import ANSWER_TIMEOUT, Query, Stream, Transport, segment

if TYPE_CHECKING:
    from pliant.client.jobs import Jobs
    from pliant.client.session import Exec, TaskInput
    from pliant.client.watch import Change
    from pliant.wire.events import EventItem
    from pliant.wire.history import HistoryEntry
    from pliant.wire.questions import QueueEntry, Verdict, WhyItem
    from pliant.wire.submission import AnySubmission, Submitted
    from pliant.wire.trash import FolderItem, KeptItem
    from pliant.wire.workload import (
        Outcome,
        PodItem,
        ProgressHistory,
        ProgressPoint,
        Sharing,
        WorkloadItem,
        WorkloadLoad,
    )

_TYPED = {
    "Training": "trainings",
    "Workspace": "workspaces",
    "Distributed": "distributed",
    "Inference": "inferences",
}


class Client(Administration):
    """A client of one server. It is not thread-safe: give each further thread its own `twin()`.

    Raises the errors of pliant.client.errors.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = ANSWER_TIMEOUT,
        socket: str | None = None,
        authority: str | None = None,
    ) -> None:
        """`socket`: path of the server's Unix socket, used instead of the URL and the token.

        `authority`: file of the certificates that verify a server at https://; None: the system's.
        """
        self._http = Transport(url, token, timeout=timeout, socket=socket, authority=authority)
        self.working_project = "default"  # project of `jobs`

    @classmethod
    def connect(cls, server: str | None = None, state: str | None = None) -> Client:
        """A client of the server that the command line would use: see pliant.client.locate."""
        endpoint = locate(server, state, config=Config())
        return cls(endpoint.url, endpoint.token, socket=endpoint.socket, authority=endpoint.authority)

    @classmethod
    def from_context(cls, server: str | None = None, state: str | None = None) -> Client:
        """`connect`, with the project of PLIANT_PROJECT, else of `project set`, else `default`."""
        config = Config()
        endpoint = locate(server, state, config=config)
        client = cls(endpoint.url, endpoint.token, socket=endpoint.socket, authority=endpoint.authority)
        client.working_project = os.environ.get("PLIANT_PROJECT") or config.project(endpoint.key) or "default"
        return client

    @property
    def jobs(self) -> Jobs:
        """Jobs as objects: `client.jobs.submit("night", ["python", "train.py"], gpus=2).wait()`."""
        from pliant.client.jobs import Jobs

        return Jobs(self, self.working_project)

    @property
    def url(self) -> str:
        return self._http.url

    def twin(self) -> Client:
        http = self._http
        twin = Client(http.url, http.token, socket=http.socket, authority=http.authority)
        twin.working_project = self.working_project
        return twin

    @property
    def trouble(self) -> str:
        """The problem that the server reported with its last answer; empty if none."""
        return self._http.trouble

    def abort(self) -> None:
        """Close the client and break off its streams. Any thread may call it."""
        self._http.abort()
        self._http.close()

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- workloads

    def workloads(
        self,
        project: str | None = None,
        *,
        name: str | None = None,
        kind: str | None = None,
        deleted: bool = False,
    ) -> Iterator[WorkloadItem]:
        """Workloads of a project (None: of all) and of a kind such as Training or Workspace (None: all)."""
        filters = [("projectName", project), ("name", name), ("type", kind)]
        query: list[tuple[str, str | int | bool | None]] = [
            ("filterBy", f"{field}=={value}") for field, value in filters if value is not None
        ]
        query.append(("deleted", True if deleted else None))
        return cast("Iterator[WorkloadItem]", self.pages("/api/v1/workloads", query))

    def find(self, name: str, project: str, *, kind: str | None = None) -> WorkloadItem:
        """The workload of that name, preferably one that is not being deleted. Raises NotFound."""
        found = list(self.workloads(project, name=name, kind=kind))
        if not found:
            raise NotFound(f"Job {name} does not exist in project {project}.", reason="not-found")
        return min(found, key=lambda item: item.get("desiredPhase") == "Deleted")

    def workload(self, workload_id: str) -> WorkloadItem:
        return cast("WorkloadItem", self._http.call("GET", _workload(workload_id)))

    def progress(self, workload_id: str) -> list[ProgressPoint]:
        """The progress that its job reported, oldest first."""
        found = self._http.call("GET", f"{_workload(workload_id)}/progress")
        return cast("ProgressHistory", found)["points"]

    def submit(self, kind: str, body: AnySubmission) -> Submitted:
        """`kind`: a key of _TYPED. Retries a lost connection; the idempotency key prevents duplicates."""
        answer = self._http.call(
            "POST",
            f"/api/v1/workloads/{_TYPED[kind]}",
            body=body,
            headers={"Idempotency-Key": os.urandom(16).hex()},
            repeatable=True,
        )
        return cast("Submitted", answer)

    def dry_run(self, kind: str, body: AnySubmission) -> Verdict:
        """What the scheduler would do with this submission. Nothing is recorded."""
        query: Query = [("dryRun", True)]
        answer = self._http.call(
            "POST", f"/api/v1/workloads/{_TYPED[kind]}", query=query, body=body, repeatable=True
        )
        return cast("Verdict", answer)

    def delete(self, workload_id: str, *, purge: bool = False) -> dict[str, Any]:
        """Delete and return {status, kept: KeptItem or None}; `purge` removes its files at once."""
        query = [("purge", True)] if purge else []
        return cast("dict[str, Any]", self._http.call("DELETE", _workload(workload_id), query=query) or {})

    def delete_all(self, ids: Sequence[str]) -> dict[str, str]:
        """Delete many, 100 per transaction. Returns the error message by id of each that was not deleted."""
        failed: dict[str, str] = {}
        for start in range(0, len(ids), 100):
            body = {"ids": [*ids[start : start + 100]], "action": "delete"}
            done = self._http.call("POST", "/api/v1/workloads/batch", body=body, repeatable=True)
            failed |= {entry["id"]: entry["message"] for entry in done["failed"]}
        return failed

    def folders(self, workload_id: str) -> FolderItem:
        return cast("FolderItem", self._http.call("GET", f"{_workload(workload_id)}/folders"))

    def kept_files(self) -> Iterator[KeptItem]:
        """The kept files of deleted workloads, oldest first."""
        return cast("Iterator[KeptItem]", self.pages("/api/v1/trash"))

    def restore_files(self, workload_id: str) -> dict[str, Any]:
        """Restore the files of a deleted workload; returns {name, bytes, path}."""
        return dict(self._http.call("POST", f"/api/v1/trash/{segment(workload_id)}/restore"))

    def suspend(self, item: Mapping[str, Any]) -> None:
        self._act(item, "suspend")

    def resume(self, item: Mapping[str, Any]) -> None:
        self._act(item, "resume")

    def cancel(self, workload_id: str, *, now: bool = False) -> Outcome:
        """End it for good; `now`: without a grace period. Returns its outcome from before the call."""
        query: Query = [("now", now or None)]
        found = self._http.call("POST", f"{_workload(workload_id)}/cancel", query=query, repeatable=True)
        return cast("Outcome", found)

    def signal(self, workload_id: str, number: int) -> int:
        """Send a signal to all processes of its running tasks; returns the number of tasks."""
        found = self._http.call("POST", f"{_workload(workload_id)}/signal", query=[("number", number)])
        return int(found["tasks"])

    def refit(
        self, workload_id: str, *, cpu: float | None = None, memory: str | None = None, group: str = ""
    ) -> WorkloadItem:
        """Change cores and memory of its tasks, or of those of one task group, while they run."""
        given = {"cpuCoreRequest": cpu, "cpuMemoryRequest": memory, "taskGroup": group or None}
        body = {key: value for key, value in given.items() if value is not None}
        found = self._http.call("PUT", f"{_workload(workload_id)}/resources", body=body, repeatable=True)
        return cast("WorkloadItem", found)

    def shared_with(self, workload_id: str) -> list[str]:
        """Who may read its log and files besides its owner: `project`, `user:NAME`."""
        found = self._http.call("GET", f"{_workload(workload_id)}/sharing")
        return cast("Sharing", found)["sharedWith"]

    def share(self, workload_id: str, others: Sequence[str]) -> list[str]:
        """Let only its owner and `others` read its log and files; returns the new list."""
        body = {"sharedWith": list(others)}
        found = self._http.call("PUT", f"{_workload(workload_id)}/sharing", body=body, repeatable=True)
        return cast("Sharing", found)["sharedWith"]

    def outcome(self, workload_id: str) -> Outcome:
        """How it ended; `exitCode` is None until it has ended."""
        return cast("Outcome", self._http.call("GET", f"{_workload(workload_id)}/outcome"))

    def history(
        self, project: str | None = None, *, since: int = 0, limit: int = 20, attempts: bool = False
    ) -> list[HistoryEntry]:
        """Workloads of a project (None: all) with their outcomes, newest first; `since` in seconds.

        With `attempts`, `tries` of each entry lists every attempt of its tasks.
        """
        asked = ("attempts", attempts or None)
        query: Query = [("projectName", project), ("sinceSeconds", since or None), ("limit", limit), asked]
        found = self._http.call("GET", "/api/v1/history", query=query)
        return cast("list[HistoryEntry]", entries(found))

    def _act(self, item: Mapping[str, Any], action: str) -> None:
        kind = _TYPED.get(str(item.get("type")))
        if kind is not None:
            self._http.call("POST", f"/api/v1/workloads/{kind}/{segment(item['id'])}/{action}")
        else:
            self._http.call("POST", "/api/v1/workloads/batch", body={"ids": [item["id"]], "action": action})

    def pods(self, workload_id: str) -> list[PodItem]:
        return cast("list[PodItem]", list(self.pages(f"{_workload(workload_id)}/pods")))

    def events(self, workload_id: str) -> list[EventItem]:
        """Its events with their reasons, oldest first."""
        return cast("list[EventItem]", list(self.pages(f"{_workload(workload_id)}/events")))

    def loads(self) -> list[WorkloadLoad]:
        """The current use of the running workloads."""
        found = self._http.call("GET", "/api/v1/workloads/load")
        return cast("list[WorkloadLoad]", found["workloads"])

    def why(self, workload_id: str, *, full: bool = False) -> WhyItem:
        query: Query = [("full", full or None)]
        return cast("WhyItem", self._http.call("GET", f"{_workload(workload_id)}/why", query=query))

    def queue(self, *, remedies: bool = False, starts: int = 0) -> list[QueueEntry]:
        """The pending workloads; the first `starts` entries have an estimated start."""
        asked: Query = [("remedies", remedies or None), ("starts", starts or None)]
        found = self._http.call("GET", "/api/v1/queue", query=asked)
        return cast("list[QueueEntry]", entries(found))

    def logs(
        self,
        workload_id: str,
        *,
        follow: bool = False,
        tail: int | None = None,
        since: int | None = None,
        pod: str | None = None,
        timestamps: bool = False,
        attempt: int | None = None,
    ) -> Stream:
        """The log in pieces; `since`: seconds before now. With `follow` it ends when the attempt ends."""
        query: Query = [
            ("follow", follow or None),
            ("tail", tail),
            ("sinceSeconds", since),
            ("pod", pod),
            ("timestamps", timestamps or None),
            ("attempt", attempt),
        ]
        return self._http.stream(
            "GET", f"{_workload(workload_id)}/logs", query=query, headers={"Accept": "text/plain"}
        )

    def exec(
        self,
        workload_id: str,
        command: Sequence[str],
        *,
        tty: bool = False,
        stdin: bool = False,
        rows: int = 24,
        columns: int = 80,
        pod: str | None = None,
    ) -> Exec:
        """Run a command in the environment of a running task."""
        body = {"command": list(command), "tty": tty, "stdin": stdin, "rows": rows, "columns": columns}
        if pod is not None:
            body["pod"] = pod
        from pliant.client.session import Exec

        answer = self._http.call("POST", f"{_workload(workload_id)}/exec", body=body)
        return Exec(self._http, answer["id"])

    def tunnelled(self, workload_id: str, pod: str | None = None) -> bool:
        """True if `open_port` reaches the ports of a running task; False if the server's machine has them."""
        found = self._http.call("GET", f"{_workload(workload_id)}/exec/port", query=[("pod", pod)])
        return bool(found["tunnel"])

    def open_port(self, workload_id: str, port: int, *, pod: str | None = None) -> Exec:
        """A connection to a program that listens in a running task. Any thread may call it."""
        from pliant.client.session import Exec

        body = {"port": port, **({"pod": pod} if pod is not None else {})}
        with closing(self._http.twin()) as http:
            answer = http.call("POST", f"{_workload(workload_id)}/exec/port", body=body)
        return Exec(self._http, answer["id"])

    def input(self, workload_id: str, pod: str, attempt: int) -> TaskInput:
        """Standard input of an attempt of a task that was submitted with `stdin`."""
        from pliant.client.session import TaskInput

        return TaskInput(self._http, workload_id, pod, attempt)

    def watch(self, project: str | None = None, *, after: str | None = None) -> Iterator[Change]:
        """Every change after this call (or after the id `after`), without end. Resumes a lost connection."""
        from pliant.client.watch import watch

        return watch(self._http, project, after)


def _workload(workload_id: str) -> str:
    return f"/api/v1/workloads/{segment(workload_id)}"

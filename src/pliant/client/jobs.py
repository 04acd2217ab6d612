"""Jobs as objects: submit, wait, read the log, cancel."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from pliant.client.errors import NotFound, Unreachable

if TYPE_CHECKING:
    from pliant.client.client import Client
    from pliant.client.transport import Stream
    from pliant.wire.questions import Verdict, WhyItem
    from pliant.wire.submission import AnySubmission
    from pliant.wire.workload import Outcome, WorkloadItem

PATIENCE = 60.0
"""Seconds for which `wait` tolerates that no server answers."""

PAUSE, LONGEST = 0.2, 1.0
"""First and longest interval between two requests of `wait`, in seconds."""


class Job:
    """One workload. `item` is its state at the last request; `refresh` requests it again."""

    def __init__(self, client: Client, item: WorkloadItem) -> None:
        self._client = client
        self.item = item

    @property
    def id(self) -> str:
        return self.item["id"]

    @property
    def name(self) -> str:
        return self.item["name"]

    @property
    def phase(self) -> str:
        """Pending, Running, Completed, ..."""
        return self.item["phase"]

    def __repr__(self) -> str:
        return f"<Job {self.name}: {self.phase}>"

    def refresh(self) -> Job:
        self.item = self._client.workload(self.id)
        return self

    def outcome(self) -> Outcome:
        """How it ended; `exitCode` is None until it has ended."""
        return self._client.outcome(self.id)

    def wait(self, timeout: float | None = None) -> Outcome:
        """Wait until it ends and return how. Evictions, retries and a server restart do not end the wait.

        Raises TimeoutError after `timeout` seconds, Unreachable if no server answers for a minute.
        """
        began = answered = time.monotonic()
        pause = PAUSE
        while True:
            now = time.monotonic()
            try:
                outcome = self.outcome()
            except Unreachable:
                if now - answered > PATIENCE:
                    raise
            else:
                answered = now
                if outcome["exitCode"] is not None:
                    return outcome
            if timeout is not None and now + pause - began > timeout:
                raise TimeoutError(f"{self.name} has not ended within {timeout:g} s")
            time.sleep(pause)
            pause = min(pause * 1.1, LONGEST)

    def logs(self, *, follow: bool = False, tail: int | None = None) -> Stream:
        """The log as pieces of bytes, or as `lines()`; with `follow` it ends when the attempt ends."""
        return self._client.logs(self.id, follow=follow, tail=tail)

    def why(self) -> WhyItem:
        """Why it is pending, and what would let it start."""
        return self._client.why(self.id)

    def suspend(self) -> None:
        self._client.suspend(self.item)

    def resume(self) -> None:
        self._client.resume(self.item)

    def cancel(self) -> None:
        """End it for good and keep its record and files."""
        self._client.cancel(self.id)

    def delete(self) -> None:
        """End it and delete it; its files are kept in the trash."""
        self._client.delete(self.id)


class Jobs:
    """The jobs of a server. Methods use `project` unless another is named; iterating yields its jobs."""

    def __init__(self, client: Client, project: str) -> None:
        self._client = client
        self.project = project

    def submit(
        self,
        name: str,
        command: Sequence[str],
        *,
        gpus: float = 1,
        kind: str = "Training",
        project: str | None = None,
        image: str = "",
        environment: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> Job:
        """Submit a job; `spec` takes further fields of a submission, by their names in the API."""
        body = self._body(name, command, gpus, project, image, environment, spec)
        answer = self._client.submit(kind, body)
        return Job(self._client, self._client.workload(answer["workloadId"]))

    def dry_run(
        self,
        name: str,
        command: Sequence[str],
        *,
        gpus: float = 1,
        kind: str = "Training",
        project: str | None = None,
        image: str = "",
        environment: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> Verdict:
        """What the scheduler would do with this job. Nothing is recorded."""
        return self._client.dry_run(kind, self._body(name, command, gpus, project, image, environment, spec))

    def get(self, name: str, project: str | None = None) -> Job:
        """The job of that name. Raises NotFound."""
        return Job(self._client, self._client.find(name, project or self.project))

    def __contains__(self, name: str) -> bool:
        try:
            self.get(name)
        except NotFound:
            return False
        return True

    def __iter__(self) -> Iterator[Job]:
        return self.all(self.project)

    def all(self, project: str | None = None) -> Iterator[Job]:
        """The jobs of a project (None: of all projects)."""
        return (Job(self._client, item) for item in self._client.workloads(project))

    def _body(
        self,
        name: str,
        command: Sequence[str],
        gpus: float,
        project: str | None,
        image: str,
        environment: Mapping[str, str] | None,
        spec: Mapping[str, Any],
    ) -> AnySubmission:
        whole = float(gpus).is_integer()
        compute = (
            {"gpuDevicesRequest": int(gpus)}
            if whole
            else {"gpuDevicesRequest": 1, "gpuRequestType": "portion", "gpuPortionRequest": gpus}
        )
        made: dict[str, Any] = {"commandArgv": [*command], "compute": compute, **spec}
        if image:
            made["image"] = image
        if environment:
            made["environmentVariables"] = [{"name": key, "value": text} for key, text in environment.items()]
        body = {"name": name, "projectName": project or self.project, "spec": made}
        return cast("AnySubmission", body)

"""A stage whose description is tried out."""

from dataclasses import replace
from typing import Any

from pliant.control.submit.submission import Submission
from pliant.model.workload import AttemptId, Kind, Launch
from tests.api.stage import IMAGE, TOKEN, Command, Stage

OWNER = {"Authorization": f"Bearer {TOKEN}"}
ENDLESS = "/api/v1/watch"


class Ground:
    """A stage on which every path leads to something that exists, if it is asked to."""

    def __init__(self, on: Stage) -> None:
        self.on = on
        self.app = on.app(backup=on.asked.append)  # paths are made up: nothing may be written there
        self.plain = {path for path in self.app.openapi()["paths"] if "{" not in path}

    def real(self, path: str) -> dict[str, Any]:
        """Parameters of a path that exist."""
        if "/exec/{session}" in path:
            return {"session": self._session()}
        if "{identity}" in path:
            return {"identity": self._workload("workspaces" in path)}
        if "{workload}" in path:
            return {"workload": self._workload(False), "task": "task-0", "number": 1}
        return {"key": "default", "name": "node-0"}

    def _workload(self, workspace: bool) -> str:
        kind = Kind.WORKSPACE if workspace else Kind.TRAINING
        for row in self.on.service.board.access.allowances.values():
            none = replace(row, running=None, waiting=None, gpu_ms=None)  # what a call before this one set
            self.on.service.usages.limit(none, "smoke")
        checked = self.on.service.check(Submission("default", Launch(IMAGE), kind))
        return self.on.service.submit(checked, "smoke").workload.id

    def _session(self) -> str:
        sessions = self.app.state.context.sessions
        return sessions.add(Command(["echo", "x"]), AttemptId("w", "task-0", 1))

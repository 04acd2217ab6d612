"""A stage for calling every operation of the description."""

from dataclasses import replace
from typing import Any

from pliant.control.submit.submission import Submission
from pliant.model.workload import AttemptId, Kind, Launch
from tests.api.stage import IMAGE, TOKEN, Command, Stage

OWNER = {"Authorization": f"Bearer {TOKEN}"}
ENDLESS = "/api/v1/watch"


class Ground:
    """A stage that can give every path parameters of things that exist."""

    def __init__(self, on: Stage) -> None:
        self.on = on
        self.app = on.app(backup=on.asked.append)  # drawn paths are arbitrary: no backup may be written there
        self.plain = {path for path in self.app.openapi()["paths"] if "{" not in path}

    def real(self, path: str) -> dict[str, Any]:
        """Values for a path's parameters that name existing things; makes them if needed."""
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
            none = replace(row, running=None, waiting=None, gpu_ms=None)  # earlier calls may have set one
            self.on.service.usages.limit(none, "smoke")
        checked = self.on.service.check(Submission("default", Launch(IMAGE), kind))
        return self.on.service.submit(checked, "smoke").workload.id

    def _session(self) -> str:
        sessions = self.app.state.context.sessions
        return sessions.add(Command(["echo", "x"]), AttemptId("w", "task-0", 1))

"""Values of environment variables on disk, in a folder per workload that only the server's account can read.

`env` holds the variables of the submission, `<task>.<attempt>` the whole environment of that attempt, which
commands run inside it get as well. No other file of the state folder contains these values.
"""

import shutil
from collections.abc import Container, Mapping
from contextlib import suppress
from pathlib import Path

from pliant.control.submit.variables import Sealed, Variables
from pliant.engines.local.folder.layout import read_json, sync, write_json
from pliant.model.workload import AttemptId

VERSION = 1


class EnvironmentLost(Exception):
    """A workload's values are not on this machine; the message says what to do."""


class SealedFolder:
    """The folder of one server. Files appear in it by rename."""

    def __init__(self, state: Path) -> None:
        self.path = state / "sealed"

    def seal(self, workload: str, sealed: Sealed) -> None:
        """Write the values durably; without any, remove the workload's folder. Raises OSError."""
        if not sealed:
            self.forget(workload)
            return
        folder = self._folder(workload)
        launches = {
            group: {
                "whole": variables.whole,
                "captured": dict(variables.captured),
                "given": dict(variables.given),
            }
            for group, variables in sealed.items()
        }
        write_json(folder / "env", {"version": VERSION, "launches": launches}, durable=True)
        sync(self.path)

    def has(self, workload: str) -> bool:
        return (self.path / workload / "env").is_file()

    def variables(self, workload: str, group: str) -> Variables:
        """The variables of the launch of that task group. Raises EnvironmentLost."""
        document = read_json(self.path / workload / "env")
        if document is None:
            raise EnvironmentLost(
                f"the values of its environment variables are not on this machine ({self.path / workload} is "
                "missing): delete the workload and submit it again"
            )
        launches = document["launches"]
        found = launches.get(group, launches.get("", {}))
        return Variables(
            tuple(found.get("given", {}).items()),
            tuple(found.get("captured", {}).items()),
            bool(found.get("whole")),
        )

    def keep(self, attempt: AttemptId, env: Mapping[str, str]) -> None:
        """Keep an attempt's environment and remove those of the task's earlier attempts. Raises OSError."""
        folder = self._folder(attempt.workload)
        for earlier in folder.glob(f"{attempt.task}.*"):
            earlier.unlink(missing_ok=True)
        write_json(folder / f"{attempt.task}.{attempt.number}", env)

    def of_attempt(self, attempt: AttemptId) -> dict[str, str] | None:
        """The environment that `keep` wrote; None if there is none."""
        return read_json(self.path / attempt.workload / f"{attempt.task}.{attempt.number}")

    def _folder(self, workload: str) -> Path:
        """The workload's folder, created if missing."""
        for folder in (self.path, self.path / workload):
            folder.mkdir(mode=0o700, exist_ok=True)
        return self.path / workload

    def forget(self, workload: str) -> None:
        with suppress(FileNotFoundError):
            shutil.rmtree(self.path / workload)

    def retain(self, workloads: Container[str]) -> None:
        """Remove the folders of other workloads: their submission was never recorded, or they are deleted."""
        for folder in self.path.iterdir() if self.path.exists() else ():
            if folder.name not in workloads:
                shutil.rmtree(folder, ignore_errors=True)

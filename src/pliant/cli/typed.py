"""training, workspace and workload: the groups of the second edition."""

from collections.abc import Callable

import click

from pliant.cli.lazy import LazyGroup
from pliant.cli.session import Session

_VERBS = {
    "submit": "pliant.cli.typed_submit:submit",
    "list": "pliant.cli.listing:typed_list",
    "describe": "pliant.cli.typed_describe:describe",
    "delete": "pliant.cli.actions:typed_delete",
    "suspend": "pliant.cli.actions:suspend",
    "resume": "pliant.cli.actions:resume",
    "logs": "pliant.cli.logs:logs",
    "exec": "pliant.cli.execute:exec_command",
    "bash": "pliant.cli.execute:bash",
    "attach": "pliant.cli.execute:attach",
}


def _about(kind: str | None, noun: str) -> Callable[[], None]:
    def remember_kind() -> None:
        session = click.get_current_context().ensure_object(Session)
        session.kind, session.noun = kind, noun

    return remember_kind


standard = LazyGroup(
    {"Commands": _VERBS},
    name="standard",
    help="Trainings of one task; the same as `training`.",
    callback=_about("Training", "training"),
)
training = LazyGroup(
    {"Commands": {**_VERBS, "standard": "pliant.cli.typed:standard"}},
    name="training",
    help="Workloads that run to an end and may be stopped for others.",
    callback=_about("Training", "training"),
)
workspace = LazyGroup(
    {"Commands": _VERBS},
    name="workspace",
    help="Interactive workloads, for people at work.",
    callback=_about("Workspace", "workspace"),
)
workload = LazyGroup(
    {"Commands": _VERBS},
    name="workload",
    help="Workloads of every kind.",
    callback=_about(None, "workload"),
)

"""training, workspace and workload: the groups of the second edition."""

from collections.abc import Callable

import click

from pliant.cli.lazy import LazyGroup
from pliant.cli.session import Session

_VERBS = {
    "submit": "pliant.cli.submit.v2:submit",
    "list": "pliant.cli.workloads.listing:typed_list",
    "describe": "pliant.cli.workloads.typed_describe:describe",
    "delete": "pliant.cli.workloads.lifecycle:typed_delete",
    "suspend": "pliant.cli.workloads.lifecycle:suspend",
    "resume": "pliant.cli.workloads.lifecycle:resume",
    "logs": "pliant.cli.streams.logs:logs",
    "exec": "pliant.cli.streams.execute:exec_command",
    "bash": "pliant.cli.streams.execute:bash",
    "attach": "pliant.cli.streams.execute:attach",
    "port-forward": "pliant.cli.streams.forward:port_forward",
}


def _about(
    kind: str | None, noun: str, *, group: str = "", also: str | None = None, framework: str | None = None
) -> Callable[[], None]:
    def remember_kind() -> None:
        session = click.get_current_context().ensure_object(Session)
        session.kind, session.noun, session.group = kind, noun, group or noun
        session.also, session.framework = also, framework

    return remember_kind


def _of_framework(name: str, framework: str) -> LazyGroup:
    return LazyGroup(
        {"Commands": {**_VERBS, "submit": f"pliant.cli.submit.distributed:{name}"}},
        name=name,
        help=f"Trainings of several tasks with {framework}.",
        callback=_about("Distributed", "training", group=f"training {name}", framework=framework),
    )


pytorch = _of_framework("pytorch", "PyTorch")
mpi = _of_framework("mpi", "MPI")
tensorflow = _of_framework("tensorflow", "TF")
xgboost = _of_framework("xgboost", "XGBoost")
jax = _of_framework("jax", "JAX")

FRAMEWORKS = {
    "pytorch": "pliant.cli.workloads.typed:pytorch",
    "mpi": "pliant.cli.workloads.typed:mpi",
    "tensorflow": "pliant.cli.workloads.typed:tensorflow",
    "tf": "pliant.cli.workloads.typed:tensorflow",
    "xgboost": "pliant.cli.workloads.typed:xgboost",
    "jax": "pliant.cli.workloads.typed:jax",
}
standard = LazyGroup(
    {"Commands": _VERBS},
    name="standard",
    help="Trainings of one task.",
    callback=_about("Training", "training", group="training standard"),
)
training = LazyGroup(
    {
        "Commands": {**_VERBS, "standard": "pliant.cli.workloads.typed:standard"},
        "Of several tasks": FRAMEWORKS,
    },
    name="training",
    help="Trainings: run to completion, preemptible.",
    callback=_about("Training", "training", also="Distributed"),
)
workspace = LazyGroup(
    {"Commands": _VERBS},
    name="workspace",
    help="Workspaces: interactive, non-preemptible, within quota only.",
    callback=_about("Workspace", "workspace"),
)
workload = LazyGroup(
    {"Commands": {**_VERBS, "list": "pliant.cli.workloads.listing:any_list"}},
    name="workload",
    help="Workloads of every kind.",
    callback=_about(None, "workload"),
)
_SERVICE = {**_VERBS, "submit": "pliant.cli.submit.inference:submit"}
inference_standard = LazyGroup(
    {"Commands": _SERVICE},
    name="standard",
    help="Inference services, each replica one task.",
    callback=_about("Inference", "inference", group="inference standard"),
)
inference = LazyGroup(
    {"Commands": {**_SERVICE, "standard": "pliant.cli.workloads.typed:inference_standard"}},
    name="inference",
    help="Inference services: replicas that are restarted when they end.",
    callback=_about("Inference", "inference"),
)

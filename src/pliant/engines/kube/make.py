"""The engine of a kubeconfig, made without importing its client where that is not installed."""

from collections.abc import Callable
from pathlib import Path

from pliant.control.ports import Engine
from pliant.engines.kube.names import SCHEDULER


def kube_engine(
    kubeconfig: str,
    cluster: str,
    scheduler: str,
    project_name: Callable[[str], str],
    clock: Callable[[], int],
) -> Engine:
    """`cluster` is the server's name for what it manages, `scheduler` the one by which pods ask for it
    (empty: pliant).

    Raises ValueError.
    """
    try:
        from pliant.engines.kube.connection import Connection
        from pliant.engines.kube.engine import KubeEngine
    except ModuleNotFoundError as error:
        raise ValueError("--kubeconfig needs lightkube: pip install 'pliant[kubernetes]'.") from error
    connection = Connection(Path(kubeconfig))
    named = scheduler or SCHEDULER
    return KubeEngine(connection, cluster, project_name=project_name, clock=clock, scheduler=named)

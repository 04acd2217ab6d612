"""Makes the engine of a kubeconfig; imports the Kubernetes client only when it is needed."""

from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pliant.control.left import Left
from pliant.control.ports import Engine, Row
from pliant.engines.kube.apiserver.names import SCHEDULER, lease_name
from pliant.model.order import Start
from pliant.model.workload import AttemptId

if TYPE_CHECKING:
    from pliant.control.fractions import Finding, Sharing
    from pliant.control.service import Service
    from pliant.engines.kube.apiserver.connection import Connection


OWN = "in-cluster"
"""Stands for a kubeconfig: the cluster in which this process is a pod."""


def kube_service(kubeconfig: str, cluster: str, service: "Service", engine: Engine) -> Callable[[], None]:
    """Keeps custom resources and rows in line and reads the reports of jobs, until the returned function is
    called; does nothing without a cluster."""
    if not kubeconfig:
        return lambda: None
    from pliant.engines.kube.apiserver.connection import Connection
    from pliant.engines.kube.engine import KubeEngine
    from pliant.engines.kube.pods.reports import Reports
    from pliant.engines.kube.resources.reconciler import Resources

    assert isinstance(engine, KubeEngine)
    found = Resources(_connected(kubeconfig, Connection), cluster, service, engine.name, engine.owners)
    heard = Reports(engine, service)
    found.start()
    heard.start()

    def close() -> None:
        heard.close()
        found.close()

    return close


def kube_engine(
    kubeconfig: str,
    cluster: str,
    scheduler: str,
    project_name: Callable[[str], str],
    clock: Callable[[], int],
    sharing: "Sharing | None" = None,
    images: Sequence[str] = (),
    rows: Callable[[Start], Mapping[str, Any]] = lambda order: {},
    kept: Callable[[Row], Mapping[str, Any]] = lambda row: {},
) -> Engine:
    """`cluster`: the server's name for its cluster. `scheduler`: the scheduler name of its pods (empty:
    pliant). `sharing`: what pods with GPU fractions need (None: no pod gets one). `images`: NAME=IMAGE, the
    image pulled for a name. `rows`: the rows that a start follows from. `kept`: what of a row its object
    records.

    Raises ValueError.
    """
    try:
        from pliant.engines.kube.apiserver.connection import Connection
        from pliant.engines.kube.engine import KubeEngine
    except ModuleNotFoundError as error:
        raise ValueError("--kubeconfig needs lightkube: pip install 'pliant[kubernetes]'.") from error
    pulled = dict(map(_named, images))
    connection = _connected(kubeconfig, Connection)
    named = scheduler or SCHEDULER
    engine = KubeEngine(
        connection,
        cluster,
        project_name=project_name,
        clock=clock,
        scheduler=named,
        sharing=sharing,
        images=pulled,
        rows=rows,
    )
    engine.owners.left.open(named, kept)
    return engine


def kube_left(
    kubeconfig: str, scheduler: str, cluster: str, known: Container[AttemptId], *, whole: bool
) -> Left:
    """What the server of that name has left on its cluster and `known` lacks; of a lost server if `cluster`
    is empty. Not `whole`: only enough to count it. Raises ValueError."""
    from httpx2 import HTTPError

    from pliant.engines.kube.apiserver.connection import Connection
    from pliant.engines.kube.engine import KubeEngine
    from pliant.engines.kube.strangers import what_is_left

    connection = _connected(kubeconfig, Connection)
    try:
        return what_is_left(connection.client, scheduler, cluster, known, KubeEngine.name if whole else "")
    except HTTPError as error:
        raise ValueError(f"The cluster does not say what runs there: {error}.") from error
    finally:
        connection.close()


def kube_admission(
    scheduler: str, image: str, engine: Engine
) -> "Callable[[dict[str, Any]], dict[str, Any]]":
    """Returns the function that answers the API server's admission reviews of new pods."""
    from pliant.engines.kube.engine import KubeEngine
    from pliant.engines.kube.others.admission import admit

    assert isinstance(engine, KubeEngine)
    return lambda review: admit(review, scheduler or SCHEDULER, image, kept=engine.kept())


def kube_epoch(kubeconfig: str, cluster: str) -> int:
    """The highest epoch of a server of that name, because a restored database knows only older ones; 0 if it
    is not known. Raises ValueError."""
    from httpx2 import HTTPError
    from lightkube.resources.coordination_v1 import Lease

    from pliant.engines.kube.apiserver.connection import Connection

    connection = _connected(kubeconfig, Connection)
    try:
        spec = connection.client.get(Lease, lease_name(cluster)).spec
    except HTTPError:
        return 0  # there was no server, or the engine is about to report that the cluster does not answer
    finally:
        connection.close()
    return (spec and spec.leaseTransitions) or 0


def kube_trouble(engine: Engine) -> Callable[[], str]:
    """Returns the function that tells what keeps the engine from its cluster; empty: nothing."""
    from pliant.engines.kube.engine import KubeEngine

    assert isinstance(engine, KubeEngine)
    return engine.trouble


def _named(pair: str) -> tuple[str, str]:
    """(name, image) of NAME=IMAGE. Raises ValueError."""
    name, _, image = pair.partition("=")
    if not name or not image:
        raise ValueError(
            f"--image {pair}: write NAME=IMAGE, e.g. elasticdl=registry.example.com/elasticdl:1."
        )
    return name, image


def kube_findings(kubeconfig: str) -> "list[Finding]":
    """What of a cluster Pliant can use, and what is missing. Raises ValueError."""
    try:
        from pliant.engines.kube.apiserver.connection import Connection
        from pliant.engines.kube.rights import examine
    except ModuleNotFoundError as error:
        raise ValueError("--kube needs lightkube: pip install 'pliant[kubernetes]'.") from error
    connection = _connected(kubeconfig, Connection)
    try:
        return examine(connection.client)
    finally:
        connection.close()


def _connected(kubeconfig: str, connection: type["Connection"]) -> "Connection":
    return connection(None if kubeconfig == OWN else Path(kubeconfig))

"""Which server leads, as its cluster knows it."""

from functools import partial
from typing import Any

from lightkube import ApiError
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import Pod

from pliant.control.ports import StaleEpoch
from pliant.engines.kube.apiserver.cluster import Cluster, made, missing, status_of
from pliant.engines.kube.apiserver.names import lease_name


def mark(cluster: Cluster, namespace: str, name: str, label: str) -> None:
    """That pod alone of its namespace has the label from now on."""
    client = cluster.client
    for pod in client.list(Pod, namespace=namespace, labels={label: "true"}):
        other = pod.metadata.name if pod.metadata is not None else None
        if other and other != name:
            change: dict[str, Any] = {"metadata": {"labels": {label: None}}}
            missing(partial(client.patch, Pod, other, change, namespace=namespace))
    client.patch(Pod, name, {"metadata": {"labels": {label: "true"}}}, namespace=namespace)


def raise_epoch(cluster: Cluster, epoch: int) -> None:
    """Raises StaleEpoch if a higher one was here."""
    client, name = cluster.client, lease_name(cluster.name)
    while True:
        lease = missing(lambda: client.get(Lease, name))
        spec = {"holderIdentity": "pliant", "leaseTransitions": epoch}
        try:
            if lease is None or lease.spec is None:
                client.create(made(Lease, {"metadata": {"name": name}, "spec": spec}))
                return
            leads = lease.spec.leaseTransitions or 0
            if leads > epoch:
                raise StaleEpoch(f"epoch {epoch} is over: {leads} leads")
            lease.spec.leaseTransitions = epoch
            client.replace(lease)
            return
        except ApiError as error:
            if status_of(error) != 409:
                raise

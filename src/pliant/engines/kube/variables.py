"""Values of environment variables, in secrets: one beside the server for each workload, one in its namespace
for each task group that has any. Pods name the latter, so that no pod shows a value."""

import base64
import json
import re
from collections.abc import Container, Iterator
from contextlib import contextmanager

from httpx2 import HTTPError

from pliant.control.submit.variables import Sealed
from pliant.engines.kube.cluster import Cluster, Refused
from pliant.engines.kube.names import WORKLOAD, variables_name

KEY = "launches"
NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
"""Of a variable that a secret can hold."""


@contextmanager
def _as_os_error() -> Iterator[None]:
    try:
        yield
    except HTTPError as error:
        raise OSError(f"the cluster does not keep environment variables: {error}") from error


class SealedSecrets:
    """`seal`, `has` and `retain` raise OSError, all others what the client raises."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @_as_os_error()
    def seal(self, workload: str, sealed: Sealed) -> None:
        if not sealed:
            self.forget(workload)
            return
        launches = {group: dict(variables.given) for group, variables in sealed.items()}
        self._cluster.keep(variables_name(workload), workload, {KEY: json.dumps(launches)})

    @_as_os_error()
    def has(self, workload: str) -> bool:
        return self._cluster.kept(variables_name(workload)) is not None

    def bring(self, workload: str, group: str, namespace: str) -> str:
        """The name of a secret in that namespace with the variables of that group; empty if it has none."""
        kept = self._cluster.kept(variables_name(workload))
        if kept is None:
            return ""
        launches = json.loads(base64.b64decode(kept[KEY]))
        values = launches.get(group, launches.get("", {}))
        if not values:
            return ""
        if bad := [name for name in values if not NAME.fullmatch(name)]:
            raise Refused(f"{bad[0]!r} cannot be the name of an environment variable on a cluster")
        name = f"{variables_name(workload)}-{group}"[:63].rstrip("-")
        self._cluster.keep(name, workload, values, namespace)
        return name

    def forget(self, workload: str) -> None:
        for secret in self._cluster.secrets(workload):
            self._cluster.drop(secret)

    @_as_os_error()
    def retain(self, workloads: Container[str]) -> None:
        for secret in self._cluster.secrets():
            labels = (secret.metadata and secret.metadata.labels) or {}
            if labels.get(WORKLOAD) not in workloads:
                self._cluster.drop(secret)

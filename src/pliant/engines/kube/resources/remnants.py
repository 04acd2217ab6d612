"""Rows on the objects that show them: what a server leaves there, and what a new one reads of them."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from httpx2 import HTTPStatusError
from lightkube import ApiError, Client

from pliant.control.errors import Refused
from pliant.control.left import Remnant
from pliant.control.ports import Row
from pliant.engines.kube.apiserver.cluster import status_of
from pliant.engines.kube.apiserver.names import CLUSTER, ROW, namespace_of
from pliant.engines.kube.resources.kinds import (
    DEPARTMENT,
    POOL,
    PROJECT,
    WORKLOAD,
    identity_of,
    quota_of,
    resource_of,
)
from pliant.model.tenancy import NO_QUOTA

log = logging.getLogger(__name__)

Json = Mapping[str, Any]

MOST = 128 * 1024
"""Bytes of a row that are left on its object, which may have 256 KiB of annotations; a larger one is not."""

CURES = {
    "Department": "Make it again: pliant department create {name} --quota ...",
    "Project": "Make it again: pliant project create {name} --quota {gpus}",
    "NodePool": "Make it again: pliant nodepool create {name} --label ...",
    "Workload": "If it does not run, submit it again: runai submit {name} ...",
}


class Remnants:
    """Of one server. Without `open` nothing is left."""

    def __init__(self, cluster: str) -> None:
        self._cluster, self._scheduler = cluster, ""
        self._kept: Callable[[Row], Json] = lambda row: {}

    def open(self, scheduler: str, kept: Callable[[Row], Json]) -> None:
        """`kept`: what of a row is to be left."""
        self._scheduler, self._kept = scheduler, kept

    def annotations(self, row: Row | None) -> dict[str, Any]:
        """What metadata of the object that shows it say; nothing of a row that is not ours, or too large."""
        said = self._kept(row) if row is not None else {}
        if not said:
            return {}
        text = json.dumps({"scheduler": self._scheduler, **said}, separators=(",", ":"))
        return {"annotations": {ROW: text}} if len(text) <= MOST else {}

    def change(self, metadata: Json, row: Row | None) -> dict[str, Any]:
        """So that an object with these metadata says what it is to say; nothing of one that is not ours."""
        wanted, there = self.annotations(row), (metadata.get("annotations") or {}).get(ROW)
        ours = (metadata.get("labels") or {}).get(CLUSTER) == self._cluster
        changed = ours and wanted and wanted["annotations"][ROW] != there
        return {"uid": metadata["uid"], **wanted} if changed else {}


def remnants(client: Client, scheduler: str) -> Iterator[tuple[str, Remnant]]:
    """Objects with the name of the server whose they are, as far as it was one of that scheduler, the oldest
    of each kind first: who forges one comes later. What is being deleted is left out. Projects and workloads
    that somebody has applied are of no server."""
    for kind in (POOL, DEPARTMENT, PROJECT, WORKLOAD):
        for body in sorted(_list(client, kind), key=_age):
            metadata, name = body["metadata"], body["metadata"]["name"]
            whose = (metadata.get("labels") or {}).get(CLUSTER, "")
            if metadata.get("deletionTimestamp"):
                continue
            if "spec" in body:
                if kind is PROJECT and (spec := _applied(name, body["spec"])) is not None:
                    yield "", Remnant("Project", name, {}, spec=spec)
                elif kind is WORKLOAD and (identity := identity_of(body)):
                    phase = str((body.get("status") or {}).get("phase", ""))
                    yield "", Remnant("Workload", name, {}, phase, identity, spec=body["spec"])
            elif whose and (one := _remnant(kind, body, scheduler)) is not None:
                yield whose, one


def _list(client: Any, kind: Any) -> Iterator[Json]:
    where = {"namespace": "*"} if kind is WORKLOAD else {}
    try:
        for found in client.list(kind, **where):
            yield found.to_dict()
    except ApiError as error:
        if status_of(error) not in (403, 404):
            raise
        log.warning("%s of a lost server are not known: %s", kind._api_info.plural, error)
    except HTTPStatusError as error:  # in plain text: the API server does not know this kind
        if error.response.status_code != 404:
            raise


def _age(body: Json) -> str:
    return str(body["metadata"].get("creationTimestamp"))


def _remnant(kind: Any, body: Json, scheduler: str) -> Remnant | None:
    """None: it is one of a server that others ask for, or says nothing."""
    metadata, status = body["metadata"], body.get("status") or {}
    text = (metadata.get("annotations") or {}).get(ROW)
    if text is None:
        return None
    try:
        row = dict(json.loads(text))
    except (TypeError, ValueError, RecursionError):
        row = {}
    if row.get("scheduler", scheduler) != scheduler:
        return None
    gpus, named = status.get("gpuQuota", "..."), kind._api_info.resource.kind
    return Remnant(
        named,
        metadata["name"],
        row,
        str(status.get("phase", "")),
        identity_of(body),
        partial(owns, metadata.get("namespace", "")),
        CURES[named].format(name=metadata["name"], gpus=gpus),
    )


def owns(namespace: str, project: str) -> bool:
    """Whether it is that of the project of that name."""
    return namespace_of(project) == namespace


def _applied(name: str, spec: Json) -> Json | None:
    """What its spec says of a project, until it is taken over; its department by name."""
    try:
        quotas = {each["name"]: quota_of(each).over(NO_QUOTA) for each in spec.get("nodePools", ())}
    except Refused:
        return None
    return {
        "quotas": tuple(sorted(quotas.items())),
        "default_pools": tuple(spec.get("defaultNodePools", ())),
        "department": spec.get("department", "default"),
        "namespace": f"runai-{name}",
        "origin": resource_of(PROJECT, name),
    }

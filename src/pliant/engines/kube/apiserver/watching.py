"""Follows one kind of objects: lists them, watches from there, and lists again when the watch is lost."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from httpx2 import HTTPError, HTTPStatusError
from lightkube import ApiError, Client
from lightkube.resources.core_v1 import Node, Pod
from lightkube.resources.resource_v1 import ResourceClaim

from pliant.engines.kube.apiserver.connection import SERVER_SECONDS

log = logging.getLogger(__name__)

PAUSE = 0.5  # seconds before an unreachable API server is asked again
ABSENT = 15.0  # seconds before a kind is asked for again that the API server lacks or hides

T = TypeVar("T", Pod, Node, ResourceClaim)


class Follower(Generic[T]):
    """`replaced` gets all objects after each list, `changed` each change as (whether it exists, object)."""

    def __init__(
        self,
        client: Client,
        kind: type[T],
        replaced: Callable[[Sequence[T]], None],
        changed: Callable[[bool, T], None],
        **where: Any,
    ) -> None:
        self._client, self._where = client, where
        self.optional = False  # True: `open` succeeds even if the list fails
        self._kind: type[T] = kind
        self._replaced: Callable[[Sequence[T]], None] = replaced
        self._changed: Callable[[bool, T], None] = changed
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self.trouble = ""  # why no news comes from the cluster; empty if it does
        self.lost = 0.0  # monotonic s; since when there is trouble

    def open(self) -> None:
        """Lists the objects and follows them on a thread of its own. Raises what the client raises."""
        version = None
        try:
            version = self._list()
        except HTTPError:
            if not self.optional:
                raise
        name = f"pliant-kube-{self._kind.__name__}"
        self._thread = threading.Thread(target=self._follow, args=(version,), name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Reports nothing from now on."""
        self._closed.set()

    def join(self) -> None:
        """Waits for its thread; the connection must have been ended."""
        if self._thread is not None:
            self._thread.join()

    def _list(self) -> str:
        found = self._client.list(self._kind, **self._where, chunk_size=500)
        self._replaced(list(found))
        return found.resourceVersion

    def _follow(self, version: str | None) -> None:
        told = ""  # each trouble is logged once
        while not self._closed.is_set():
            try:
                version = version or self._list()
                self.trouble = ""
                self._watch(version)
                told = ""
            except Exception as error:  # noqa: BLE001 - whatever cut the watch: start again from the list
                if self._closed.is_set():
                    return
                gone = isinstance(error, ApiError) and error.status.code == 410
                if not gone:
                    self.lost = self.lost if self.trouble else time.monotonic()
                    self.trouble = _said(error)
                    absent = self.optional and _status(error) == 404
                    if self.trouble != told and not absent:
                        log.warning("lost sight of %ss: %s", self._kind.__name__, self.trouble)
                    told = self.trouble
                    hidden = self.optional and _status(error) in (403, 404)
                    self._closed.wait(ABSENT if hidden else PAUSE)
                version = None

    def _watch(self, version: str) -> None:
        events = self._client.watch(
            self._kind, **self._where, resource_version=version, server_timeout=SERVER_SECONDS
        )
        for kind, found in events:
            if self._closed.is_set():
                return
            self._changed(kind != "DELETED", found)


def _status(error: Exception) -> int:
    if isinstance(error, ApiError):
        return error.status.code or 0
    return error.response.status_code if isinstance(error, HTTPStatusError) else 0


def _said(error: Exception) -> str:
    """A text that stays the same while the cause is the same."""
    if isinstance(error, HTTPStatusError) and error.response.status_code == 403:
        return "they may not be watched: `pliant doctor --kube` names rights that the account lacks"
    if isinstance(error, HTTPStatusError) and not isinstance(error, ApiError):
        return f"the API server answers {error.response.status_code}"
    return str(error)

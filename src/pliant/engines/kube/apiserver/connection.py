"""The connection to one API server, which can be ended while answers are still coming."""

import logging
import socket
import threading
import weakref
from pathlib import Path

import httpx2
from lightkube import Client, KubeConfig
from lightkube.config.client_adapter import verify_cluster
from lightkube.core.decoders import decode_list, decode_watch_event
from lightkube.core.exceptions import ConfigError
from lightkube.models.meta_v1 import Status
from lightkube.resources.authorization_v1 import SelfSubjectAccessReview
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import (
    Event,
    Namespace,
    Node,
    Pod,
    PodBinding,
    PodEviction,
    PodResize,
    PodStatus,
    Secret,
    Service,
)
from lightkube.resources.resource_v1 import ResourceClaim
from lightkube.resources.scheduling_v1 import PriorityClass

logging.getLogger("httpx2").setLevel(logging.WARNING)  # else it logs every request

CONNECT, ANSWER = 10.0, 35.0
"""Timeouts in seconds to connect, and for the next part of an answer: a slow server still does the work."""

SERVER_SECONDS = 20
"""Seconds after which the API server ends a watch; the watch then continues from where it was."""

SILENCE = SERVER_SECONDS + 10.0
"""Seconds without data after which a watch counts as lost; lightkube alone would wait for ever."""


KINDS: tuple[type, ...] = (
    Event,
    Lease,
    Namespace,
    Node,
    Pod,
    PodBinding,
    PodEviction,
    PodResize,
    PodStatus,
    PriorityClass,
    ResourceClaim,
    Secret,
    SelfSubjectAccessReview,
    Service,
    Status,
)
"""All kinds that several threads read and write."""


def learn() -> None:
    """Makes msgspec learn the kinds beforehand: it learns a kind at its first use, and the process crashes if
    a second thread uses the kind meanwhile."""
    for kind in KINDS:
        decode_list(b'{"items": []}', kind)
    decode_watch_event(b'{"type": "", "object": {}}')


class Unreachable(ValueError):
    """The cluster does not exist, or refuses access; the text says what to do."""


class Transport(httpx2.HTTPTransport):
    """Keeps its sockets, so that `end` can wake threads that read from them before they are closed."""

    def __init__(self, verify: object) -> None:
        super().__init__(verify=verify, limits=httpx2.Limits(max_connections=None))  # type: ignore[arg-type]
        self._lock = threading.Lock()
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.params.get("watch"):
            request.extensions["timeout"] = {**request.extensions["timeout"], "read": SILENCE}
        response = super().handle_request(request)
        stream = response.extensions.get("network_stream")
        found = stream.get_extra_info("socket") if stream is not None else None
        if isinstance(found, socket.socket):
            with self._lock:
                self._sockets.add(found)
        return response

    def end(self) -> None:
        with self._lock:
            for found in list(self._sockets):
                try:
                    socket.socket.shutdown(found, socket.SHUT_RDWR)
                except OSError:
                    continue  # it is closed already


class Connection:
    """Any thread may use `client` until `end` is called."""

    def __init__(self, kubeconfig: Path | None) -> None:
        """By its current context; None: as a pod of the cluster, or as kubectl. Raises Unreachable."""
        try:
            given = KubeConfig.from_env() if kubeconfig is None else KubeConfig.from_file(kubeconfig)
            config = given.get()
            if config is None or config.user is None:
                raise ConfigError("it has no current context with a user")
            self._transport = Transport(verify_cluster(config.cluster, config.user, config.abs_file))
            learn()
            timeout = httpx2.Timeout(CONNECT, read=ANSWER)
            self.client = Client(config, timeout=timeout, transport=self._transport, trust_env=False)
        except (ConfigError, OSError, KeyError, ValueError, AssertionError) as error:
            where = kubeconfig or "the kubeconfig of this account"
            raise Unreachable(
                f"{where} names no cluster: {error}. Look with `kubectl config view`."
            ) from error

    def end(self) -> None:
        """Makes all requests that wait for an answer fail now."""
        self._transport.end()

    def close(self) -> None:
        """Call this when no thread uses the client any more."""
        self.client.close()

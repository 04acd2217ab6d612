"""The way to one API server, which can be given up while answers are still coming."""

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

logging.getLogger("httpx2").setLevel(logging.WARNING)  # it would note every request

CONNECT, ANSWER = 10.0, 35.0
"""Seconds for a connection, and for the next word of an answer: who is slow does what is asked as well."""

SERVER_SECONDS = 20
"""After which the API server ends a watch and it is asked for again from where it was."""

SILENCE = SERVER_SECONDS + 10.0
"""Seconds without a word after which a watch is taken for lost; lightkube alone would wait for ever."""


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
"""All that is read and written by several threads."""


def learn() -> None:
    """msgspec learns a kind when the first of it is read, and the process crashes if a second thread reads
    one meanwhile."""
    for kind in KINDS:
        decode_list(b'{"items": []}', kind)
    decode_watch_event(b'{"type": "", "object": {}}')


class Unreachable(ValueError):
    """There is no such cluster, or it does not let us in; says what to do."""


class Transport(httpx2.HTTPTransport):
    """Knows its sockets: a thread that reads from one is woken by `end`, before anybody closes them."""

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
                    continue  # it has ended by itself


class Connection:
    """`client` is for any thread until `end` is called."""

    def __init__(self, kubeconfig: Path | None) -> None:
        """By its current context; None: as a pod of the cluster, or as kubectl does. Raises Unreachable."""
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
        """All callers that wait for an answer get an error now."""
        self._transport.end()

    def close(self) -> None:
        """Nobody uses it any more."""
        self.client.close()

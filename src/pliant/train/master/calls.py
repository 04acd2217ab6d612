"""Calls to the master: one persistent connection per thread, one JSON object in and one out."""

import http.client
import json
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

from pliant.train.errors import MasterAway, Refused

ANSWER_S = 10.0  # timeout of an answer, in addition to a long call's own wait


class MasterClient:
    """Calls the master at `address` (host:port); safe for any number of threads."""

    def __init__(self, address: str, token: str, *, patience_s: float = 120.0) -> None:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise Refused(f"{address!r} is not a master's address; one looks like 127.0.0.1:29400", "address")
        self.address = address
        self.patience_s = patience_s
        self._host, self._port = host, int(port)
        self._token = token
        self._mine = threading.local()

    @classmethod
    def from_environment(cls) -> "MasterClient | None":
        """A client by PLIANT_TRAIN_MASTER and PLIANT_TRAIN_TOKEN_FILE; None outside of a job."""
        address = os.environ.get("PLIANT_TRAIN_MASTER")
        if not address:
            return None
        path = os.environ.get("PLIANT_TRAIN_TOKEN_FILE", "")
        try:
            token = Path(path).read_text("utf-8").strip() if path else ""
        except OSError as error:
            raise Refused(f"The token of this job cannot be read: {error}", "token") from error
        return cls(address, token)

    def call(
        self,
        name: str,
        body: dict[str, Any] | None = None,
        *,
        wait_ms: int = 0,
        patience_s: float | None = None,
    ) -> dict[str, Any]:
        """POST /v1/name; retries while the master is away. Raises MasterAway after `patience_s`, Refused."""
        until = time.monotonic() + (self.patience_s if patience_s is None else patience_s)
        data = json.dumps({**(body or {}), "wait_ms": wait_ms}).encode()
        pause = 0.01
        while True:
            try:
                status, payload = self._send(name, data, wait_ms / 1000 + ANSWER_S)
                break
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if time.monotonic() + pause > until:
                    raise MasterAway(f"The master at {self.address} does not answer: {error}") from error
                time.sleep(pause)
                pause = min(2 * pause, 0.5)
        answer = json.loads(payload) if payload else {}
        if status != 200:
            raise Refused(str(answer.get("error", f"HTTP {status}")), str(answer.get("code", "")), status)
        return dict(answer)

    def close(self) -> None:
        """Close this thread's connection."""
        kept: http.client.HTTPConnection | None = getattr(self._mine, "kept", None)
        if kept is not None:
            kept.close()
            self._mine.kept = None

    def _send(self, name: str, data: bytes, timeout: float) -> tuple[int, bytes]:
        kept: http.client.HTTPConnection | None = getattr(self._mine, "kept", None)
        if kept is None:
            kept = http.client.HTTPConnection(self._host, self._port, timeout=timeout)
            kept.connect()
            kept.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._mine.kept = kept
        kept.sock.settimeout(timeout)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        kept.request("POST", f"/v1/{name}", data, headers)
        answer = kept.getresponse()
        return answer.status, answer.read()

"""A server with answers set by the test, and an attempt's folder beside it."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from pliant.train.agent.link import Link
from pliant.wire.proof import PATH, key_of, proof

ATTEMPT = "w-1/task-0/1"
TOKEN = "secret"
A, B = "GPU-a", "GPU-b"


def entry(state: str, *gpus: str, deadline: int | None = None, task: str = "task-0", attempt: int = 1) -> Any:
    return {
        "id": task,
        "attempt": attempt,
        "node": "n",
        "gpus": list(gpus),
        "state": state,
        "deadline": deadline,
    }


class Scheduler:
    """The routes of a job; `now` is its clock, `ahead_ms` ahead of ours."""

    def __init__(self, port: int = 0) -> None:
        self.changed = threading.Condition()
        self.document: dict[str, Any] | None = None
        self.ahead_ms = 0
        self.slow_s = 0.0  # delay before it answers a link
        self.refusal: tuple[int, dict[str, str]] | None = None
        self.heard: list[tuple[str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if self.path.startswith(PATH) and outer.refusal is not None and outer.refusal[0] == 401:
                    self.answer(*outer.refusal)
                    return
                if self.path.startswith(PATH):
                    asked = dict(parse_qsl(urlsplit(self.path).query))
                    here = self.connection.getsockname()[:2]
                    self.answer(200, {"proof": proof(key_of(TOKEN), asked["nonce"], *here)})
                    return
                query = self.path.partition("after=")[2]
                with outer.changed:
                    outer.changed.wait_for(lambda: outer.over or outer.version > int(query or -1), 5)
                    if outer.over:
                        self.close_connection = True
                        return
                    body = {**outer.document, "now": outer.now} if outer.document else {"message": "none"}
                    self.answer(200 if outer.document else 404, body)

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                body = json.loads(self.rfile.read(length))
                what = self.path.rpartition("/")[2]
                if outer.refusal is not None:
                    self.answer(*outer.refusal)
                    return
                with outer.changed:
                    outer.heard.append((what, body))
                if what == "link":
                    time.sleep(outer.slow_s)
                now = outer.now
                answers = {
                    "link": {"protocol": 1, "now": now, "aheadMs": body.get("nowMs", now) - now},
                    "progress": {"nextMs": 50},
                }
                self.answer(200, answers.get(what, {}))

            def answer(self, status: int, body: Any) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.send_header("X-Token", self.headers.get("Authorization", ""))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        self.over = False
        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    @property
    def version(self) -> int:
        return int(self.document["version"]) if self.document else -1

    @property
    def now(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms

    def tell(self, version: int, *tasks: Any) -> None:
        with self.changed:
            self.document = {"version": version, "epoch": 1, "tasks": list(tasks)}
            self.changed.notify_all()

    def said(self, what: str) -> list[Any]:
        with self.changed:
            return [body for kind, body in self.heard if kind == what]

    def close(self) -> None:
        self.over = True
        with self.changed:
            self.changed.notify_all()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    with socket.socket() as held:  # bound, not listening: keeps the port while the server is away
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        made = Scheduler(held.getsockname()[1])
        yield made
        made.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An attempt's folder as the local engine makes it, below a state folder."""
    path = tmp_path / "state" / "attempts" / "w-1" / "task-0" / "1"
    path.mkdir(parents=True)
    return path


def write(folder: Path, version: int, *tasks: Any) -> None:
    aside = folder / ".allocation"
    aside.write_text(json.dumps({"version": version, "epoch": 1, "tasks": list(tasks)}))
    aside.rename(folder / "allocation.json")


@pytest.fixture
def link(scheduler: Scheduler, folder: Path) -> Iterator[Link]:
    made = Link(ATTEMPT, folder, scheduler.url, "secret", pid=4711)
    made.start()
    yield made
    made.close(0.2)

"""A fake server: canned wire items over real HTTP, and a record of its requests."""

import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from pliant.wire.proof import PATH, key_of, named, proof
from tests.cli.items import CLUSTER, EVENT, OUTCOME, POD, node, unit

TOKEN = "fake-token"


class Request(NamedTuple):
    method: str
    path: str
    query: list[tuple[str, str]]
    body: Any
    headers: dict[str, str]


class Answer(NamedTuple):
    status: int = 200
    body: Any = None  # JSON; bytes are sent as they are, Chunks one by one


class Chunks(list[bytes]):
    """Pieces of a stream, iterated while it is sent."""


def proven(query: dict[str, str], host: str, port: int) -> Answer:
    """The answer of a server that knows these two tokens to a client that has not sent a token yet."""
    token = {named(one): one for one in (TOKEN, "jwt")}.get(query["token"])
    if token is None:
        return problem(401, "The token is missing or wrong.", "unauthorized")
    return Answer(200, {"proof": proof(key_of(token), query["nonce"], host, port)})


def problem(status: int, message: str, reason: str, details: str = "") -> Answer:
    return Answer(
        status, {"status": status, "code": status, "message": message, "details": details, "reason": reason}
    )


class Fake:
    """Its items (tests change them freely), the requests that it got, and answers that replace its own."""

    def __init__(self) -> None:
        self.url = ""
        self.workloads: list[dict[str, Any]] = []
        self.loads: list[dict[str, Any]] = []
        self.projects = [unit("default", 0.0), unit("team-a", 2.0), unit("team-b", 2.0)]
        self.departments = [unit("default", 4.0)]
        self.nodes = [node("node-1", 0.0, 0.0)]
        self.tunnels = False  # true if tasks have their own addresses
        self.pools: list[dict[str, Any]] = [
            {"id": "1", "name": "default", "labelKey": None, "isDefault": True, "minRuntimeSeconds": 0}
        ]
        self.requests: list[Request] = []
        self.answered: list[str] = []  # paths of the requests whose answers have been sent
        self.answers: dict[tuple[str, str], Answer] = {}  # (method, path) -> answer
        self.page = 500  # most entries of one page of a list
        self.break_next = 0  # number of connections to cut instead of answering
        self.notices: list[str] = []
        self.chunks: dict[str, Chunks] = {}  # path -> what a stream sends
        self.seen: list[Any] = []  # spec.submittedFrom of submissions; removed from the bodies in `requests`

    @property
    def last(self) -> Request:
        return self.requests[-1]

    def sent(self, method: str, path: str) -> list[Any]:
        """Bodies of the requests to that path."""
        return [request.body for request in self.requests if (request.method, request.path) == (method, path)]

    def answer(self, request: Request) -> Answer:
        if isinstance(request.body, dict) and "submittedFrom" in (request.body.get("spec") or {}):
            self.seen.append(request.body["spec"].pop("submittedFrom"))
        if (found := self.answers.get((request.method, request.path))) is not None:
            return found
        if request.path in ("/healthz", "/readyz"):
            return Answer()
        if request.path == "/version":
            return Answer(body={"version": "0.1.0", "api": "v1"})
        if request.path == "/api/v1/token":
            return Answer(body={"accessToken": "jwt", "expiresIn": 3600})
        if request.headers.get("authorization") not in (f"Bearer {TOKEN}", "Bearer jwt"):
            return problem(401, "The token is missing or wrong.", "unauthorized")
        for method, pattern, reply in self._routes():
            match = re.fullmatch(pattern, request.path)
            if match and method == request.method:
                return reply(request, *(unquote(part) for part in match.groups()))
        return problem(404, f"There is no route {request.method} {request.path}.", "no-route")

    def _routes(self) -> Any:
        return (
            ("GET", "/api/v1/whoami", lambda r: Answer(body={"user": "yaron", "id": "local:1000"})),
            ("GET", "/api/v1/clusters", lambda r: Answer(body=[CLUSTER])),
            ("GET", "/api/v1/nodes", lambda r: self._list(r, "nodes", self.nodes)),
            ("POST", "/api/v1/nodes/([^/]+)/(?:un)?cordon", lambda r, name: Answer(204)),
            ("GET", "/api/v1/node-pools", lambda r: self._list(r, "nodepools", self.pools)),
            ("POST", "/api/v1/node-pools", lambda r: Answer(201, r.body)),
            ("PATCH", "/api/v1/node-pools/([^/]+)", lambda r, name: Answer(200, r.body)),
            ("DELETE", "/api/v1/node-pools/([^/]+)", lambda r, name: Answer(204)),
            ("GET", "/api/v1/org-unit/projects", lambda r: self._list(r, "projects", self.projects)),
            ("GET", "/api/v1/org-unit/departments", lambda r: self._list(r, "departments", self.departments)),
            ("GET", "/api/v1/org-unit/projects/([^/]+)", self._project),
            ("POST", "/api/v1/org-unit/(?:projects|departments)", lambda r: Answer(201, r.body)),
            (
                "PATCH",
                "/api/v1/org-unit/(?:projects|departments)/([^/]+)",
                lambda r, name: Answer(200, r.body),
            ),
            ("DELETE", "/api/v1/org-unit/(?:projects|departments)/([^/]+)", lambda r, name: Answer(202)),
            ("POST", "/api/v1/workloads/(trainings|workspaces|distributed|inferences)", self._submit),
            (
                "POST",
                "/api/v1/workloads/(?:trainings|workspaces|distributed|inferences)/[^/]+/(?:suspend|resume)",
                lambda r: Answer(202, {}),
            ),
            (
                "POST",
                "/api/v1/workloads/batch",
                lambda r: Answer(body={"id": "b", "succeeded": r.body["ids"], "failed": []}),
            ),
            ("GET", "/api/v1/workloads", self._workloads),
            (
                "GET",
                "/api/v1/workloads/load",
                lambda r: Answer(body={"timestamp": "", "workloads": self.loads}),
            ),
            ("GET", "/api/v1/workloads/([^/]+)", self._workload),
            ("DELETE", "/api/v1/workloads/([^/]+)", lambda r, name: Answer(202)),
            (
                "GET",
                "/api/v1/workloads/[^/]+/folders",
                lambda r: Answer(body=dict.fromkeys(("workingDir", "jobFolder", "logFolder"))),
            ),
            ("GET", "/api/v1/workloads/[^/]+/outcome", lambda r: Answer(body=OUTCOME)),
            ("POST", "/api/v1/workloads/[^/]+/cancel", lambda r: Answer(body=OUTCOME | {"exitCode": None})),
            ("GET", "/api/v1/workloads/[^/]+/pods", lambda r: Answer(body={"next": None, "pods": [POD]})),
            (
                "GET",
                "/api/v1/workloads/[^/]+/events",
                lambda r: Answer(body={"next": None, "events": [EVENT]}),
            ),
            ("GET", "(/api/v1/workloads/[^/]+/logs)", self._stream),
            ("GET", "(/api/v1/watch)", self._stream),
            ("POST", "/api/v1/workloads/[^/]+/exec", lambda r: Answer(201, {"id": "s1"})),
            ("GET", "/api/v1/workloads/[^/]+/exec/port", lambda r: Answer(body={"tunnel": self.tunnels})),
            ("POST", "/api/v1/workloads/[^/]+/exec/port", lambda r: Answer(201, {"id": "s1"})),
            ("GET", "(/api/v1/exec/s1/output)", self._stream),
            ("POST", "/api/v1/exec/s1/(?:input|resize)", lambda r: Answer(202, {})),
            ("DELETE", "/api/v1/exec/s1", lambda r: Answer(202, {})),
            ("GET", "/api/v1/exec/s1", lambda r: Answer(body={"exitCode": 0})),
            ("GET", "/api/v1/queue", lambda r: Answer(body={"entries": []})),
        )

    def _list(self, request: Request, key: str, entries: list[dict[str, Any]]) -> Answer:
        query = dict(request.query)
        start = int(query.get("offset", 0))
        end = start + min(int(query.get("limit", 50)), self.page)
        return Answer(body={"next": end if end < len(entries) else None, key: entries[start:end]})

    def _workloads(self, request: Request) -> Answer:
        found = self.workloads
        for name, value in request.query:
            if name == "filterBy":
                field, _, wanted = value.partition("==")
                found = [item for item in found if str(item[field]) == wanted]
        return self._list(request, "workloads", found)

    def _workload(self, request: Request, identity: str) -> Answer:
        for item in self.workloads:
            if item["id"] == identity:
                return Answer(body=item)
        return problem(404, f"There is no workload {identity}.", "not-found")

    def _project(self, request: Request, name: str) -> Answer:
        for entry in self.projects:
            if entry["name"] == name:
                return Answer(body=entry)
        return problem(404, f"There is no project {name}.", "not-found")

    def _submit(self, request: Request, kind: str) -> Answer:
        body = request.body
        if ("dryRun", "true") in request.query:
            said = {"code": "no-room", "message": "2 GPUs are in use", "numbers": {}}
            return Answer(body={"verdict": "waits", "reason": said, "placements": [], "disrupted": []})
        if not any(entry["name"] == body["projectName"] for entry in self.projects):
            return problem(404, f"There is no project {body['projectName']}.", "not-found")
        if any(item["name"] == body.get("name") for item in self.workloads):
            return problem(409, f"A workload named {body['name']} exists in project team-a.", "name-exists")
        name = body.get("name") or (
            f"{body['nameBase']}-0" if "nameBase" in body else f"{kind[:-1]}-0123456789ab"
        )
        return Answer(
            202, {"name": name, "workloadId": f"id-{name}", "notices": self.notices, "spec": body["spec"]}
        )

    def _stream(self, request: Request, path: str) -> Answer:
        return Answer(200, self.chunks.get(path, Chunks()))


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores a client that hangs up between requests; reports any other error on stderr."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def serving() -> Iterator[Fake]:
    """Runs a Fake on a free port of this machine."""
    fake = Fake()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def _handle(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            raw = self.rfile.read(length) if length else b""
            parts = urlsplit(self.path)
            as_json = self.headers.get("content-type") == "application/json"
            headers = {name.lower(): value for name, value in self.headers.items()}
            query = parse_qsl(parts.query)
            request = Request(self.command, parts.path, query, json.loads(raw) if as_json else raw, headers)
            if parts.path.endswith(PATH):
                self._reply(proven(dict(query), *self.connection.getsockname()[:2]))
                return
            fake.requests.append(request)
            if fake.break_next:
                fake.break_next -= 1
                self.close_connection = True
                return
            try:
                self._reply(fake.answer(request))
            finally:
                fake.answered.append(parts.path)

        def _reply(self, answer: Answer) -> None:
            self.send_response(answer.status)
            if isinstance(answer.body, Chunks):
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for piece in answer.body:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                    self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n")
                return
            data = answer.body if isinstance(answer.body, bytes) else b""
            if answer.body is not None and not isinstance(answer.body, bytes):
                data = json.dumps(answer.body).encode()
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)

"""Two servers change places: the client retries one that says that it does not lead."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pliant.client.errors import Unreachable
from pliant.client.transport import Transport

asked: list[str] = []


class Answers(BaseHTTPRequestHandler):
    """Answers `not-leading` twice, then 200; at /busy always `unavailable`."""

    def do_POST(self) -> None:
        asked.append(self.path)
        reason = "unavailable" if self.path == "/busy" else "not-leading" if len(asked) < 3 else ""
        body = json.dumps({"message": "no", "reason": reason} if reason else {"done": True}).encode()
        self.send_response(503 if reason else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    asked.clear()
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_address[1]}"
    httpd.shutdown()
    thread.join(60)
    httpd.server_close()


def test_a_call_that_was_not_done_is_made_again(server: str) -> None:
    transport = Transport(server, None, timeout=120)
    assert transport.call("POST", "/", body={}) == {"done": True}
    assert asked == ["/", "/", "/"]
    transport.close()


def test_any_other_refusal_is_told_at_once(server: str) -> None:
    transport = Transport(server, None, timeout=120)
    with pytest.raises(Unreachable):
        transport.call("POST", "/busy", body={})
    assert asked == ["/busy"]
    transport.close()

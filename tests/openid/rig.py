"""A real provider on a port of this machine, and the steps of a browser there."""

import http.client
import json
import re
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2
from joserfc.jwk import RSAKey

from pliant.model.identity import Provider
from tests.house.environments import python_of

HERE = Path(__file__).parent
CLIENT_SECRET = "a secret: of the client / 100%"
SECONDS = 180.0


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def new_key(name: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": name})


class Canaille:
    """The provider's process. Tests know its keys, so they can sign what it would never sign."""

    def __init__(self, folder: Path, home: str = "", refresh: bool = True) -> None:
        """`home`: the address of the console; by default a free port, for tests that do not return there."""
        self.folder, self.refresh = folder, refresh
        self.port = free_port()
        self.issuer = f"http://127.0.0.1:{self.port}"
        self.home = home or f"http://127.0.0.1:{free_port()}"
        self.key = new_key("first")
        secret = folder / "client-secret"
        secret.write_text(f"{CLIENT_SECRET}\n")
        secret.chmod(0o600)
        self.told = Provider(
            "Lab login", self.issuer, "pliant", str(secret), self.home, ("openid", "profile", "groups")
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *keys: RSAKey) -> None:
        """Starts it and waits until it answers; the first of the keys signs."""
        self._process = self._run(keys or (self.key,))
        deadline = time.monotonic() + SECONDS
        while not self._answers():
            assert self._process.poll() is None, (self.folder / "provider.log").read_text()
            assert time.monotonic() < deadline, "the provider did not start in time"
            time.sleep(0.05)

    def _run(self, keys: Sequence[RSAKey], **more: object) -> subprocess.Popen[bytes]:
        told = {
            "store": str(self.folder / "store.sqlite"),
            "port": self.port,
            "back": self.told.back,
            "secret": CLIENT_SECRET,
            "keys": [key.as_dict(private=True) for key in keys],
            "refresh": self.refresh,
            **more,
        }
        with open(self.folder / "provider.log", "ab") as log:
            program = python_of(HERE, "no OpenID Connect provider", "run `tests/openid/setup` (1 minute)")
            words = [str(program), str(HERE / "provider.py")]
            run = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=self.folder)
        assert run.stdin is not None
        run.stdin.write(json.dumps(told).encode())
        run.stdin.close()
        return run

    def put(self, **groups: Sequence[str]) -> None:
        """Puts each user into exactly these groups; locks users without a group."""
        done = self._run((self.key,), groups=groups)
        assert done.wait(SECONDS) == 0, (self.folder / "provider.log").read_text()

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", "/.well-known/openid-configuration")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(SECONDS)
            self._process = None

    def log_in(self, address: str, name: str) -> str:
        """Logs a user in with a browser; returns the address to which the provider sends it back."""
        with httpx2.Client(base_url=self.issuer, timeout=SECONDS) as browser:
            answer = browser.get(address)
            for _ in range(10):
                if answer.has_redirect_location:
                    target = answer.headers["location"]
                    if target.startswith(self.home):
                        return target
                    answer = browser.get(target)
                    continue
                inputs = dict(re.findall(r'<input[^>]*name="([^"]+)"[^>]*value="([^"]*)"', answer.text))
                form = {key: unescape(value) for key, value in inputs.items()}
                form |= {field: name for field in ("login", "password") if f'name="{field}"' in answer.text}
                answer = browser.post(str(answer.url), data={**form, "answer": "accept"})
        raise AssertionError(f"the provider did not send the browser back: {answer.text[:2000]}")

    def code(self, address: str, name: str) -> str:
        """Logs in; returns the code that the browser brings back."""
        back = parse_qs(urlsplit(self.log_in(address, name)).query)
        assert "code" in back, back
        return back["code"][0]


@contextmanager
def canaille(
    folder: Path, home: str = "", keys: Sequence[RSAKey] = (), refresh: bool = True
) -> Iterator[Canaille]:
    made = Canaille(folder, home, refresh)
    made.start(*keys)
    try:
        yield made
    finally:
        made.stop()

"""One of several servers over one database and one cluster, as the chart runs them."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.kubernetes.control_plane import ROOT

LEASE = 1.0
TOKEN = "token-of-both"


class Replica:
    def __init__(
        self, name: str, folder: Path, address: str, kubeconfig: Path, env: Mapping[str, str] | None = None
    ) -> None:
        """`name` is the name of its pod in the namespace `pliant`; continues the folder of an earlier one."""
        self.name, self.state = name, folder / name
        self.state.mkdir(mode=0o700, exist_ok=True)
        for word in ("token", "secret"):
            path = self.state / word
            path.write_text(TOKEN)
            path.chmod(0o600)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        words = [sys.executable, "-m", "pliant.app", "serve", f"--state={self.state}", "--replica"]
        words += [f"--database={address}", f"--kubeconfig={kubeconfig}", f"--lease={LEASE}"]
        words += [f"--port={self.port}"]
        environment = {**os.environ, "POD_NAME": name, "POD_NAMESPACE": "pliant", **(env or {})}
        with (folder / f"{name}.log").open("ab") as log:
            self.process = subprocess.Popen(words, cwd=ROOT, env=environment, stdout=log, stderr=log)

    def ask(self, path: str, body: Any = None, *, method: str | None = None, timeout: float = 20) -> Any:
        """(status, answer); (0, {}) if there is no answer."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        url = f"http://127.0.0.1:{self.port}{path}"
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                said = answer.read()
                return answer.status, json.loads(said) if said else {}
        except urllib.error.HTTPError as error:
            return error.code, {}
        except (OSError, ValueError):
            return 0, {}

    def leads(self) -> bool:
        return bool(self.ask("/api/v1/clusters", timeout=2)[0] == 200)

    def lives(self) -> bool:
        return self.process.poll() is None

    def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        self.process.send_signal(how)
        self.process.wait(60)

"""The shared server over a box: runs as its own account; real accounts use it by the command line."""

import http.client
import json
import os
import pwd
import socket
import subprocess
import sys
from pathlib import Path

from tests.box.accounts import acting as acting_as
from tests.box.box_rig import SECONDS, Box, until

REPOSITORY = Path(__file__).parents[2]
NEEDED = sorted(
    {Path(part or ".").resolve() for part in (sys.base_prefix, sys.prefix, REPOSITORY, *sys.path)}
)
"""The folders that an account must read to run this Python and Pliant."""


def closed(place: Path) -> bool:
    return place.exists() and not place.stat().st_mode & 0o001


def opened() -> list[str]:
    """Words before a command that let it read Python and Pliant in a folder that only root may enter.

    In a mount namespace of its own, that folder is covered by one that has only what is needed: a build
    machine's Python is in /root, which no account of a test may enter.
    """
    covered = {part for place in NEEDED for part in place.parents if closed(part)}
    covered = {part for part in covered if not covered & set(part.parents)}
    if not covered:
        return []
    script = ["set -e", "keep=$(mktemp -d /run/plt-keep.XXXXXX)", 'mount -t tmpfs -o mode=755 none "$keep"']
    for part in sorted(covered):
        inside = [place for place in NEEDED if part in place.parents and place.exists()]
        tops = [place for place in inside if not set(inside) & set(place.parents)]
        for number, place in enumerate(tops):
            script += [f'mkdir "$keep/{number}"', f"mount --bind '{place}' \"$keep/{number}\""]
        script += [f"mount -t tmpfs -o mode=755 none '{part}'"]
        for number, place in enumerate(tops):
            script += [f"mkdir -p '{place}'", f"mount --bind \"$keep/{number}\" '{place}'"]
            script += [f'umount "$keep/{number}"', f'rmdir "$keep/{number}"']
    script += ['umount "$keep"', 'rmdir "$keep"', 'exec "$@"']
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", "\n".join(script), "sh"]


OPENED = opened()


def acting(owner, *argv, env=None):
    """Runs a command as that account, without our environment, and waits for its end."""
    return subprocess.run(
        [*OPENED, "setpriv", "--reuid", str(owner.uid), "--regid", str(group_of(owner)), "--init-groups",
         *argv],
        env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", **(env or {})},
        capture_output=True, text=True, timeout=SECONDS, check=False, cwd="/",
    )  # fmt: skip


def group_of(owner) -> int:
    return pwd.getpwuid(owner.uid).pw_gid


class ServedBox(Box):
    """A warden and a server over it, with simulated cards."""

    view = OPENED  # jobs run this Python as well
    console = 0  # port of the web pages; 0: none

    def __init__(self, tag: str) -> None:
        super().__init__(tag)
        self.serving = None

    def make(self, server="") -> None:
        super().make(server)
        self.state, self.run_dir = self.base / "srv", self.base / "front"
        self.socket = self.run_dir / "pliant.sock"
        for folder, mode in ((self.state, 0o700), (self.run_dir, 0o755)):
            folder.mkdir(mode=mode)
            folder.chmod(mode)
            os.chown(folder, self.server.uid, -1)

    def serve(self, *more, halt="") -> None:
        """Starts the server and waits until it answers. `halt`: the point at which it kills itself."""
        log = os.open(self.base / "serve.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)
        settings = self.base / "config.yaml"
        settings.write_text(
            f"socket: {self.socket}\nwarden: {self.config}\nconsole: {self.console}\nsimulate: [1x2]\n"
            "connections: 6\nsubmissions: 2\ncommands: 2\nstreams: 3\ntasks: 5\npending: 50\n"
        )
        settings.chmod(0o644)
        env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
        words = ["serve", "--box", "--config", str(settings), *more]
        self.serving = subprocess.Popen(
            [*OPENED, "setpriv", "--reuid", str(self.server.uid), "--regid", str(group_of(self.server)),
             "--clear-groups", "--inh-caps", "-all", "--bounding-set", "-all",
             sys.executable, "-m", "pliant.cli", "--state", str(self.state), *words],
            env=env | {"PLIANT_HALT": halt},
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/",
        )  # fmt: skip
        os.close(log)
        until(self.answers, "the server answers")

    def answers(self) -> bool:
        assert self.serving.poll() is None, self.told()
        with socket.socket(socket.AF_UNIX) as made:
            try:
                made.connect(str(self.socket))
            except OSError:
                return False
        return self.ask(0, "GET", "/readyz")[0] == 200

    def told(self) -> str:
        log = self.state / "server.log"
        return (self.base / "serve.log").read_text() + (log.read_text() if log.exists() else "")

    def cut(self) -> None:
        """Sends SIGKILL."""
        self.serving.kill()
        self.serving.wait()

    @property
    def root(self):
        return type(self.server)(0, "root")

    def cli(self, owner, *words, env=None):
        """Runs the command line as that account, which is given only the socket's path."""
        home = {"HOME": str(self.base / "nowhere"), "PLIANT_CONFIG": str(self.base / "no" / "config.json")}
        env = {"PLIANT_SOCKET": str(self.socket), "PLIANT_ETC": str(self.base), **home, **(env or {})}
        return acting(owner, sys.executable, "-m", "pliant.cli", *words, env=env)

    def good(self, owner, *words, **more) -> str:
        done = self.cli(owner, *words, **more)
        assert done.returncode == 0, (words, done, self.told()[-3000:])
        return done.stdout

    def ask(self, uid, method, path, body=None, *, token="") -> tuple[int, dict | str]:
        """Status and answer of one request over the socket from a process of that uid."""

        def send(pipe):
            with socket.socket(socket.AF_UNIX) as made:
                made.connect(str(self.socket))
                link = http.client.HTTPConnection("localhost")
                link.sock = made
                headers = {"Content-Type": "application/json"}
                headers |= {"Authorization": f"Bearer {token}"} if token else {}
                link.request(method, path, json.dumps(body), headers)
                answer = link.getresponse()
                said = {"status": answer.status, "body": answer.read().decode()}
            with open(pipe, "w", closefd=False) as file:
                file.write(json.dumps(said) + "\0")

        with acting_as(self.entry(uid), send) as child:
            child.until(b"\0")
            said = json.loads(child.said.split(b"\0")[0])
        text = said["body"]
        return said["status"], json.loads(text) if text.startswith("{") else text  # otherwise a log

    def entry(self, who):
        """A made-up entry of the password file for an account or a uid."""
        uid = getattr(who, "uid", who)
        return pwd.struct_passwd(("", "", uid, uid, "", "", ""))

    def allow(self, owner, role=5) -> None:
        """Grants a role by number; 5: AI practitioner."""
        project = self.ask(0, "GET", "/api/v1/org-unit/projects")[1]["projects"][0]["id"]
        rule = {"subjectType": "unix", "subjectId": owner.name, "roleId": role, "scopeType": "project"}
        status, said = self.ask(0, "POST", "/api/v1/authorization/access-rules", rule | {"scopeId": project})
        assert status in (200, 201, 202), said

    def job(self, owner, name) -> str:
        """Submits a job; returns its id."""
        return self.row(owner, name)["id"]

    def log(self, owner, job) -> bytes:
        """What its owner can read of the log now."""
        status, said = self.ask(owner.uid, "GET", f"/api/v1/workloads/{job}/logs")
        return said.encode() if status == 200 else b""

    def row(self, owner, name) -> dict:
        status, said = self.ask(owner.uid, "GET", "/api/v1/workloads")
        assert status == 200, said
        return next(row for row in said["workloads"] if row["name"] == name)

    def clean(self) -> None:
        if self.serving is not None and self.serving.poll() is None:
            self.cut()
        super().clean()

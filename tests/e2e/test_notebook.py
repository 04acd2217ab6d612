"""A real Jupyter as a job: a URL that answers, a free port, also as root, over a server's restart."""

import json
import socket
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from examples.walkthrough import Done, Stage
from tests.e2e.witness import jupyter_status, until


class Shell:
    """A shell with this Python's Jupyter, installed by a script like pip's."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.folder = stage.home / "venv" / "bin"
        self.folder.mkdir(parents=True)
        program = self.folder / "jupyter-server"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m jupyter_server "$@"\n')
        program.chmod(0o755)

    def type(self, command: str) -> Done:
        return self.stage.run(f"PATH={self.folder}:$PATH; {command}", 240.0)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    stage = Stage(tmp_path)
    try:
        assert stage.run("pliant up --simulate 1x4:16G").code == 0
        yield Shell(stage)
    finally:
        stage.close()


def test_two_notebooks_answer_and_go_on_over_a_restart(shell: Shell) -> None:
    first = shell.type("pliant workspace submit nb1 --jupyter -g 1")
    second = shell.type("pliant submit nb2 --jupyter -g 0.5")
    assert (first.code, second.code) == (0, 0), first.said + second.said
    addresses = [done.out.splitlines()[-1] for done in (first, second)]
    ports = [urlsplit(address).port for address in addresses]
    assert len(set(ports)) == 2
    assert [jupyter_status(address) for address in addresses] == [200, 200]
    assert jupyter_status(addresses[0].partition("?")[0] + "?token=wrong") == 403
    assert f"ssh -L {ports[0]}:127.0.0.1:{ports[0]} USER@HOST" in first.err
    token = addresses[0].rpartition("=")[2]
    listed = shell.type("pliant list; pliant list -o json; pliant describe job nb1 -o yaml; pliant logs nb1")
    assert f"http://localhost:{ports[0]}" in listed.out
    assert token not in listed.said, "the token is a secret elsewhere"
    assert shell.type("pliant restart").code == 0
    assert jupyter_status(addresses[0]) == 200
    again = shell.type("pliant url nb1")
    assert again.out.strip() == addresses[0], again.said
    taken = shell.type(f"pliant submit nb3 --jupyter --port {ports[0]}")
    assert taken.code == 5
    assert f"Port {ports[0]} is in use by nb1." in taken.err
    assert shell.type("pliant cancel nb1 --now").code == 0
    until(lambda: jupyter_status(addresses[0]) == 0, "the session ends with the job")
    told = "nb1 is not running"  # the port may be free just before the server sees the end
    until(lambda: told in (gone := shell.type("pliant url nb1")).err and gone.code == 5, told)


def test_a_port_that_is_taken_between_choice_and_use(shell: Shell) -> None:
    """Another program listens at the first choice by the time Jupyter starts."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        choice = (
            "import sys; from pliant.cli.submit import notebook as n; from pliant.cli.main import main; "
            f"choose, first = n.free_port, [{port}]; "
            "n.free_port = lambda: first.pop() if first else choose(); "
            "sys.exit(main(['submit', 'nb', '--jupyter']))"
        )
        done = shell.type(f'{sys.executable} -c "{choice}"')
    assert done.code == 0, done.said
    assert f"Port {port} was taken by another program. Choosing another port." in done.err
    assert jupyter_status(done.out.splitlines()[-1]) == 200


STAND_IN = """\
#!{python}
# As much of the protocol of {name} as tells that it is there; the program itself is not installed here.
import http.server, json, os, sys
words = dict(word.lstrip("-").partition("=")[::2] for word in sys.argv[1:])
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        board = {{"data_location": words.get("logdir")}}
        known = {{"/healthz": {{"status": "alive"}}, "/data/environment": board,
                  "/password": os.environ.get("PASSWORD")}}
        self.send_response(200 if self.path in known else 404)
        self.end_headers()
        self.wfile.write(json.dumps(known.get(self.path)).encode())
port = words.get("port") or words["bind-addr"].rpartition(":")[2]
http.server.HTTPServer(("127.0.0.1", int(port)), Page).serve_forever()
"""


def read(address: str, path: str) -> object:
    with urllib.request.urlopen(address.rstrip("/") + path, timeout=60) as answer:
        return json.load(answer)


def test_tensorboard_and_vscode(shell: Shell) -> None:
    for name in ("tensorboard", "code-server"):
        program = shell.folder / name
        program.write_text(STAND_IN.format(python=sys.executable, name=name))
        program.chmod(0o755)
    board = shell.type("pliant workspace submit tb --tensorboard runs")
    assert board.code == 0, board.said
    address = board.out.splitlines()[-1]
    assert read(address, "/data/environment") == {"data_location": str(shell.stage.home / "runs")}
    code = shell.type("pliant submit vs --vscode")
    assert code.code == 0, code.said
    [password] = [line.partition(": ")[2] for line in code.err.splitlines() if "password" in line]
    assert len(password) == 32 and read(code.out.splitlines()[-1], "/password") == password
    listed = shell.type("pliant list -o json; pliant describe job vs -o yaml")
    assert password not in listed.said
    assert f":{urlsplit(address).port}" in shell.type("pliant list").out
    again = shell.type("pliant url tb; pliant url vs")
    assert again.out.splitlines() == [address, code.out.splitlines()[-1]]
    assert password in again.err
    assert shell.type("pliant submit both --jupyter --vscode").code == 2


TUNNEL = """\
#!/bin/sh
test "$*" = "tunnel --accept-server-license-terms" || exit 9
echo "To grant access, log into https://github.com/login/device and use code ABCD-1234"
sleep 1
echo "Open this link in your browser https://vscode.dev/tunnel/here"
exec sleep infinity
"""


def test_a_tunnel_of_vscode_prints_how_to_log_in(shell: Shell) -> None:
    """With a stand-in for `code`, which needs the Internet."""
    program = shell.folder / "code"
    program.write_text(TUNNEL)
    program.chmod(0o755)
    done = shell.type("pliant workspace submit vs --vscode")
    assert done.code == 0, done.said
    assert "https://github.com/login/device and use code ABCD-1234" in done.out
    until(lambda: "https://vscode.dev/tunnel/here" in shell.type("pliant url vs").out, "its address")
    program.write_text("#!/bin/sh\necho no network >&2; exit 3\n")
    failed = shell.type("pliant workspace submit gone --vscode")
    assert failed.code == 3 and "pliant logs gone" in failed.err
    assert shell.type("pliant workspace submit no --vscode --port 8000").code == 2


def test_openssh_inside_a_job(shell: Shell) -> None:
    """With a stand-in for sshd, which this machine may lack: it prints its arguments and echoes."""
    done = shell.type("pliant submit box -g 0.5 -- sleep infinity && pliant wait box --for running")
    assert done.code == 0, done.said
    missing = shell.type("echo x | pliant ssh-proxy box")
    if missing.code != 127:  # this machine has one
        assert missing.out.startswith("SSH-2.0-")
    else:
        assert "no sshd in the job's PATH: install the OpenSSH server" in missing.said
    program = shell.folder / "sshd"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@" >"$PLIANT_JOB_DIR/said"\nexec cat\n')
    program.chmod(0o755)
    done = shell.type("pliant submit ssh -g 0.5 -- sleep infinity && pliant wait ssh --for running")
    assert done.code == 0, done.said
    sums = shell.type("head -c 300000 /dev/urandom >x; sha256sum <x; pliant ssh-proxy ssh <x | sha256sum")
    first, second = sums.out.splitlines()
    assert first == second, "every byte, both ways"
    folder = Path(shell.type("pliant describe job ssh | sed -n 's/^JOB FOLDER: //p'").out.strip())
    said = (folder / "said").read_text().splitlines()
    assert said[:3] == ["-i", "-e", "-f"] and f"HostKey={folder}/.ssh/host_key" in said
    assert "PasswordAuthentication=no" in said
    assert (folder / ".ssh" / "host_key").stat().st_mode & 0o777 == 0o600
    [kept] = [word for word in said if word.startswith("SetEnv=")]
    for name in ("PLIANT_ATTEMPT", "CUDA_VISIBLE_DEVICES", "LD_PRELOAD"):
        assert f" {name}=" in kept, "its limits hold there, and its end finds what runs there"
    assert shell.type("pliant ssh-config ssh").out.startswith("Host ssh.pliant\n")


def test_without_a_program(shell: Shell) -> None:
    alone = shell.stage.home / "alone"  # pip may have put a Jupyter beside pliant
    alone.mkdir()
    (alone / "pliant").symlink_to(shell.stage.programs / "pliant")
    for flag, cure in (
        ("--jupyter", "No jupyter in the job's PATH. Run: pip install jupyterlab"),
        ("--tensorboard runs", "No tensorboard in the job's PATH. Run: pip install tensorboard"),
        ("--vscode", "Run: npm install --global --unsafe-perm code-server"),
    ):
        done = shell.type(f"PATH={alone}; pliant submit nb {flag}")
        assert done.code == 2
        assert cure in done.err
    assert shell.type("pliant submit nb --jupyter --port x").code == 2
    assert shell.stage.run("pliant list -o name").out == ""

"""The program that mpirun calls instead of ssh, and its server in a worker: both run here."""

import os
import socket
import struct
import subprocess
import sys
from contextlib import suppress

import pytest

from pliant.engines.kube.pods import mpi_shell
from pliant.engines.kube.pods.mpi_shell import SIZE, Broken, Way, call
from tests.house.gaps import gap
from tests.house.waiting import until
from tests.kubernetes.keeper import free_ports

SERVE = (
    "import sys; from pliant.engines.kube.pods.mpi_shell import serve; serve('the word', int(sys.argv[1]))"
)

CALL = """\
import sys
from pliant.engines.kube.pods.mpi_shell import call
sys.exit(call(*sys.argv[1:4], int(sys.argv[4])))
"""


@pytest.fixture
def worker(tmp_path):
    """Starts the worker's server; gives its port."""
    (port,) = free_ports(1)
    log = tmp_path / "log"
    with log.open("wb") as said:
        process = subprocess.Popen([sys.executable, "-c", SERVE, str(port)], stdout=said, stderr=said)

    def listens():
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
            return True
        return False

    until(listens, "it listens")
    yield port, process, log
    process.terminate()
    assert process.wait(60) == 128 + 15


def test_it_listens_on_ipv4_too_where_sockets_of_ipv6_are_for_ipv6_alone(monkeypatch):
    """As on a node with net.ipv6.bindv6only=1."""
    if not socket.has_dualstack_ipv6():
        gap("no IPv6", "run where sockets of IPv6 can be made")

    class Alone(socket.socket):
        def __init__(self, family=-1, *args):
            super().__init__(family, *args)
            if family == socket.AF_INET6:
                self.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)

    with monkeypatch.context() as patched:
        patched.setattr(socket, "socket", Alone)
        listener = mpi_shell.listening(0)
    with listener, socket.create_connection(("127.0.0.1", listener.getsockname()[1]), 5):
        pass


def said(port, command, word="the word"):
    """The command's exit code, standard output and error, as mpirun gets them."""
    words = [sys.executable, "-c", CALL, word, "127.0.0.1", command, str(port)]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def test_a_command_prints_and_ends_there(worker):
    port, *_ = worker
    assert said(port, "echo out; echo err >&2; exit 7") == (7, "out\n", "err\n")
    assert said(port, "kill -9 $$")[0] == 137
    assert said(port, "cat; head -c 300000 /dev/zero | tr '\\0' a")[1] == "a" * 300_000


def test_who_does_not_know_the_word_starts_nothing(worker, tmp_path):
    port, _, log = worker
    code, out, err = said(port, f"touch {tmp_path}/made", word="another")
    assert (code, out) == (255, "") and "the connection has ended" in err
    assert not (tmp_path / "made").exists()
    until(lambda: "refused a caller: it does not know the word of this job" in log.read_text(), "it says so")


def test_what_was_heard_once_starts_nothing_again(worker, tmp_path):
    """An attacker on the network has recorded all that a caller sent, and replays it."""
    port, *_ = worker
    heard = []
    with socket.create_connection(("127.0.0.1", port), 10) as sock:

        class Tapped:
            def sendall(self, data):
                heard.append(data)
                sock.sendall(data)

            def recv(self, size):
                return sock.recv(size)

        way = Way(Tapped(), "the word", caller=True)
        way.send(b"C", b'{"command": "echo x >> %s"}' % os.fsencode(tmp_path / "made"))
        assert way.hear() == (b"X", b"0")
    with socket.create_connection(("127.0.0.1", port), 10) as sock:
        sock.sendall(b"".join(heard))
        assert len(sock.recv(SIZE)) == SIZE and sock.recv(1) == b"", "it hangs up"
    assert (tmp_path / "made").read_text() == "x\n"


def test_what_is_changed_on_the_way_is_not_taken(worker):
    port, *_ = worker
    with socket.create_connection(("127.0.0.1", port), 10) as sock:
        way = Way(sock, "the word", caller=True)
        way._sent = 1
        way.send(b"C", b'{"command": "true"}')
        with pytest.raises((Broken, OSError)):
            way.hear()
    with socket.create_connection(("127.0.0.1", port), 10) as sock:
        Way(sock, "the word", caller=True)
        sock.sendall(struct.pack("!I", mpi_shell.MOST + 1))
        assert sock.recv(1) == b""


def test_what_it_started_ends_with_the_caller(worker):
    port, *_ = worker
    with socket.create_connection(("127.0.0.1", port), 10) as sock:
        way = Way(sock, "the word", caller=True)
        way.send(b"C", b'{"command": "echo $$; sleep 1000"}')
        kind, pid = way.hear()
        assert kind == b"1" and alive(int(pid))
    until(lambda: not alive(int(pid)), "it is gone")


def alive(pid):
    with suppress(OSError), open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"
    return False


def test_words_of_ssh_are_understood(monkeypatch):
    seen = []
    monkeypatch.setattr(mpi_shell, "call", lambda *words: seen.append(words) or 0)
    monkeypatch.setenv("PLIANT_TRAIN_TOKEN", "the word")
    assert mpi_shell.main(["-x", "-l", "root", "worker-0.job", "orted", "-mca", "a"]) == 0
    assert seen == [("the word", "worker-0.job", "orted -mca a")]
    assert mpi_shell.main(["worker-0.job"]) == 255
    monkeypatch.delenv("PLIANT_TRAIN_TOKEN")
    assert mpi_shell.main(["worker-0.job", "true"]) == 255


def test_a_worker_that_is_not_there(capfd):
    (port,) = free_ports(1)
    assert call("the word", "127.0.0.1", "true", port, patience=0.0) == 255
    assert "rsh: 127.0.0.1: " in capfd.readouterr().err

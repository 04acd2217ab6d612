"""Effects of the terminal on a command: a reader that goes away, Ctrl-C three times in a row."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from pliant.cli.streams.signals import heard
from pliant.cli.workloads import run as module
from tests.cli.items import workload


class Left(BaseException):
    """Raised instead of ending this process."""


def test_a_fast_third_interrupt_does_not_lose_the_cancellation(monkeypatch):
    """The process ends only after the server has answered the cancellation, however late."""
    order: list[str] = []
    released = threading.Event()

    class Client:
        def __enter__(self):
            return self

        def __exit__(self, *exc):
            return None

        def twin(self):
            return self

        def cancel(self, identity):
            released.wait(60)
            order.append(f"cancelled {identity}")

    class Session:
        client = Client()
        program = "pliant"

    def leave(code):
        order.append(f"left {code}")
        raise Left

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(module, "TELLING", 60.0)
    keys = module.Keys(Session(), "id-1", "job")  # type: ignore[arg-type]
    keys._interrupted()
    keys._interrupted()
    threading.Timer(0.2, released.set).start()
    with pytest.raises(Left):
        keys._interrupted()
    assert order == ["cancelled id-1", "left 130"]


DEAF = """
import ctypes, os, signal, sys
from pliant.cli.streams.signals import heard

libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
libc.pthread_mutex_lock(mutex)
with heard({signal.SIGINT: lambda: os._exit(7)}):
    print("deaf", flush=True)
    libc.pthread_mutex_lock(mutex)
"""


def test_a_signal_is_heard_while_the_main_thread_waits_for_a_server():
    """Uses a wait that no signal interrupts; a signal that comes just before a read is missed likewise."""
    with subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "deaf\n"
            child.send_signal(signal.SIGINT)
            assert child.wait(60) == 7
        finally:
            child.kill()


def test_after_it_a_signal_does_what_it_did_before():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with heard({signal.SIGINT: lambda: None}):
        assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


def test_what_nohup_ignores_stays_ignored():
    script = """if 1:
        import os, signal
        from pliant.cli.streams.signals import heard
        with heard({signal.SIGHUP: lambda: os._exit(7), signal.SIGINT: lambda: os._exit(8)}):
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGINT)
            signal.pause()
        """
    assert subprocess.run(["nohup", sys.executable, "-c", script], check=False, timeout=60).returncode == 8


@pytest.mark.parametrize("line", ["describe job a1", "list", "submit --help"])
def test_a_reader_that_goes_away_sees_no_traceback(fake, line):
    """As in `pliant describe job a1 | head -1`, but the reader is gone before the first line."""
    fake.workloads = [workload("a1")]
    words = [sys.executable, "-m", "pliant.cli", *line.split()]
    if line.split()[0] != "submit":
        words += ["-p", "team-a"]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.close()
    said = child.stderr.read().decode()
    child.wait()
    child.stderr.close()
    assert "Traceback" not in said, said
    assert "Error" not in said, said

"""The supervisor's files in the attempt's folder, lock and log, and what the task inherits."""

import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.supervise.starter import FALLBACK, SECONDS, Attempt, alive, until

# ---- lock


def test_the_lock_says_who_holds_it(attempt: Attempt) -> None:
    attempt.launch("sleep", "1000")
    line = json.loads(attempt.path("lock").read_text())
    assert line == {
        "version": 1,
        "pid": attempt.pid,
        "start": int(Path(f"/proc/{attempt.pid}/stat").read_text().rpartition(")")[2].split()[19]),
        "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
    }
    assert Path(f"/proc/{attempt.pid}/comm").read_text() == "pliant-superv\n"


def test_a_killed_supervisor_leaves_a_free_lock_and_no_record_though_the_task_lives(attempt: Attempt) -> None:
    attempt.launch("sleep", "1000")
    assert not attempt.lock_is_free()
    attempt.kill()
    until(attempt.lock_is_free, "its exec, which is still closing what is not the task's")
    assert alive(attempt.task_pid)
    assert not attempt.path("exit.json").exists()


def test_the_lock_outlives_the_starter_and_the_record_comes_before_its_end(attempt: Attempt) -> None:
    """The starter is killed as soon as the supervisor exists: before its exec or at any time after."""
    script = (
        "import fcntl, os, signal, sys\n"
        "fd = os.open(sys.argv[1], os.O_RDWR); fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "os.set_inheritable(fd, True); dead, alive = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    os.setsid(); os.close(alive); os.read(dead, 1)\n"
        "    words = [str(fd) if word == 'FD' else word for word in sys.argv[2:]]\n"
        "    os.execv(words[0], words)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    fcntl.flock(attempt.lock_fd, fcntl.LOCK_UN)
    words = [*attempt.supervisor, "--dir", str(attempt.folder), "--lock-fd", "FD", "sleep", "1000"]
    command = [sys.executable, "-c", script, str(attempt.path("lock")), *words]
    assert subprocess.run(command, env=attempt.environment, check=False).returncode == -signal.SIGKILL
    assert not attempt.lock_is_free()
    line = until(lambda: attempt.path("lock").read_text(), "a line in the lock")
    os.kill(json.loads(line)["pid"], signal.SIGTERM)
    until(attempt.lock_is_free, "a free lock")
    assert json.loads(attempt.path("exit.json").read_text())["stopped"]


def test_nothing_runs_where_another_process_holds_the_lock(attempt: Attempt) -> None:
    other = os.open(attempt.path("lock"), os.O_RDWR)
    fcntl.flock(attempt.lock_fd, fcntl.LOCK_UN)
    fcntl.flock(other, fcntl.LOCK_EX)
    attempt.launch("touch", str(attempt.path("ran")))
    os.close(other)
    assert (
        attempt.ready == f"error {attempt.folder}/lock is held by another process: the attempt is running\n"
    )
    assert attempt.process
    assert attempt.process.wait() == 2
    assert os.listdir(attempt.folder) == ["lock"]


def test_an_attempt_that_has_ended_does_not_run_again(attempt: Attempt) -> None:
    attempt.path("exit.json").write_text("{}\n")
    attempt.launch("touch", str(attempt.path("ran")))
    assert attempt.ready == f"error {attempt.folder}/exit.json exists: the attempt has ended\n"
    assert sorted(os.listdir(attempt.folder)) == ["exit.json", "lock"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--grace-ms", "1s", "true"], "--grace-ms: 1s is not a number between 0 and 1000000000000"),
        (["--grace-ms=-1", "true"], "--grace-ms: -1 is not a number between 0 and 1000000000000"),
        (["--log-max", "0", "true"], "--log-max: 0 is not a number between 1 and 1000000000000000"),
        (["--log-keep=1000", "true"], "--log-keep: 1000 is not a number between 0 and 999"),
        (["--log-keep"], "--log-keep: its value is missing"),
        (["--log_keep=1", "true"], "--log_keep=1: no such option"),
        (["--tty=yes", "true"], "--tty=yes: no such option"),
        (["--verbose", "true"], "--verbose: no such option"),
        (["--"], "--dir, --lock-fd and a command are needed"),
        (["--dir", "/no/such/folder", "true"], "--dir /no/such/folder: No such file or directory"),
        (["--lock-fd", "0", "true"], "--lock-fd is not the file {folder}/lock"),
        (["--lock-fd", "999", "true"], "--lock-fd is not the file {folder}/lock"),
    ],
)
def test_a_wrong_command_line_runs_nothing(attempt: Attempt, words: list[str], error: str) -> None:
    attempt.launch(*words, stderr=subprocess.PIPE)
    assert attempt.process
    _, said = attempt.process.communicate(timeout=SECONDS)
    error = error.format(folder=attempt.folder)
    assert attempt.process.returncode == 2
    assert said == f"pliant-supervise: {error}\n"
    assert attempt.ready == f"error {error}\n"
    assert os.listdir(attempt.folder) == ["lock"]


@pytest.mark.parametrize("name", [None, "", "x" * 513])
def test_a_task_that_could_not_be_found_again_is_not_started(attempt: Attempt, name: str | None) -> None:
    wrap = ["env", "-u", "PLIANT_ATTEMPT"] if name is None else ["env", f"PLIANT_ATTEMPT={name}"]
    attempt.launch("true", wrap=wrap)
    assert attempt.ready.startswith("error PLIANT_ATTEMPT must be 1 to 512 bytes long")


def test_a_command_may_look_like_an_option(attempt: Attempt) -> None:
    attempt.launch("printf", "%s,", "--tty", "--", "-x", "", options=["--log-keep=1", "--"])
    attempt.wait()
    assert attempt.output() == "--tty,--,-x,,"


# ---- what the task inherits


def test_the_task_has_three_descriptors_and_the_supervisor_none_of_the_starters(attempt: Attempt) -> None:
    leak = os.open("/etc/passwd", os.O_RDONLY)
    spare = [os.dup(leak) for _ in range(20)]
    attempt.launch("sleep", "1000", leak=[leak, *spare])
    for fd in (leak, *spare):
        os.close(fd)
    folder = f"/proc/{attempt.task_pid}/fd"
    # "started" is written at its exec: its loader may still have a library open.
    until(lambda: sorted(os.listdir(folder)) == ["0", "1", "2"], "no descriptor but three")
    fds = {fd: os.readlink(f"{folder}/{fd}") for fd in "012"}
    assert fds["0"] == "/dev/null"
    assert fds["1"] == fds["2"]
    assert fds["1"].startswith("pipe:")
    held = until(lambda: links(attempt.pid), "its own descriptors to stand still")
    assert "/etc/passwd" not in held
    assert len(held) < 14
    assert os.readlink(f"/proc/{attempt.pid}/cwd") == "/"


def test_the_task_has_a_session_of_its_own_and_default_signals(attempt: Attempt) -> None:
    attempt.launch("sleep", "1000", wrap=["sh", "-c", "trap '' HUP INT TERM CHLD USR1; exec \"$@\"", "sh"])
    words = Path(f"/proc/{attempt.task_pid}/stat").read_text().rpartition(")")[2].split()
    assert words[1:4] == [str(attempt.pid), str(attempt.task_pid), str(attempt.task_pid)]
    status = Path(f"/proc/{attempt.task_pid}/status").read_text().splitlines()
    masks = dict(line.split(":\t") for line in status if line.startswith(("SigIgn", "SigBlk", "SigPnd")))
    ours = ~(0b11 << 31)  # signals 32 and 33 are libc's own: our parent may have left them ignored
    assert {name: int(value, 16) & ours for name, value in masks.items()} == dict.fromkeys(masks, 0)
    assert set(masks) == {"SigPnd", "SigBlk", "SigIgn"}
    attempt.stop()
    assert attempt.wait()["signal"] == signal.SIGTERM


def links(pid: int) -> list[str]:
    """The targets of its descriptors; [] if one was closed meanwhile."""
    try:
        return [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
    except FileNotFoundError:
        return []


def environ(pid: int) -> bytes:
    """Its environment; empty for a moment during an exec."""
    return Path(f"/proc/{pid}/environ").read_bytes()


def test_environment_and_folder_come_through_unchanged(attempt: Attempt, tmp_path: Path) -> None:
    """Without LC_ALL and LANG, as Python would then add an LC_CTYPE of its own."""
    attempt.environment |= {"EMPTY": "", "LINES_OF_TEXT": "a\nb", "BYTES": "\udcff"}
    attempt.launch("sleep", "1000", options=["--cwd", str(tmp_path)])
    environment = until(lambda: environ(attempt.task_pid), "its exec to be over").split(b"\0")[:-1]
    assert environment == [os.fsencode(f"{name}={value}") for name, value in attempt.environment.items()]
    assert os.readlink(f"/proc/{attempt.task_pid}/cwd") == str(tmp_path)


def test_standard_input_is_empty(attempt: Attempt) -> None:
    attempt.launch("cat")
    assert attempt.wait()["code"] == 0
    assert attempt.output() == ""


def test_a_terminal(attempt: Attempt) -> None:
    attempt.shell("test -t 1 && test -t 2 && stty size <&1 && cat && : >/dev/tty && exit 4", "--tty")
    assert attempt.wait()["code"] == 4
    assert attempt.output().splitlines() == ["24 80"]


def test_a_terminal_that_the_task_no_longer_uses_does_not_hang_up(attempt: Attempt, tmp_path: Path) -> None:
    script = "exec >/dev/null 2>&1; touch closed; until [ -e go ]; do sleep 0.01; done; exit 3"
    attempt.shell(script, "--tty")
    until((tmp_path / "closed").exists, "the terminal to be closed")
    (tmp_path / "go").touch()
    assert attempt.wait()["code"] == 3


def test_last_words_through_a_terminal(new_attempt: Callable[..., Attempt]) -> None:
    for _ in range(10):
        attempt = new_attempt()
        attempt.launch("echo", "last words", options=["--tty"])
        attempt.wait()
        assert attempt.path("log").read_bytes().endswith(b"last words\r\n")


# ---- log


def logs_of(attempt: Attempt) -> list[Path]:
    """The logs, without their files of times."""
    return sorted(path for path in attempt.folder.glob("log*") if not path.name.startswith("log-times"))


def numbered(count: int) -> str:
    return "".join(f"line {number:06}\n" for number in range(count))


def test_the_log_rotates_between_lines_and_keeps_so_many(attempt: Attempt) -> None:
    attempt.shell("i=0; seq -f 'line %06g' 0 1999", "--log-max", "5000", "--log-keep", "2")
    attempt.wait()
    assert [path.name for path in logs_of(attempt)] == ["log", "log.1", "log.2"]
    files = [attempt.path(name).read_text() for name in ("log.2", "log.1", "log")]
    assert all(len(text) <= 5000 and text.endswith("\n") for text in files)
    assert all(len(text) > 4980 for text in files[:2])
    assert numbered(2000).endswith("".join(files))


def test_without_kept_files_the_log_starts_again(attempt: Attempt) -> None:
    attempt.shell("seq -f 'line %06g' 0 999", "--log-max=5000", "--log-keep=0")
    attempt.wait()
    assert [path.name for path in logs_of(attempt)] == ["log"]
    text = attempt.path("log").read_text()
    assert 0 < len(text) <= 5000
    assert numbered(1000).endswith(text)


def test_a_line_longer_than_a_file_is_cut(attempt: Attempt) -> None:
    attempt.shell("head -c 3500 /dev/zero | tr '\\0' x", "--log-max=1000", "--log-keep=9")
    assert attempt.wait()["log_dropped"] == 0
    texts = [path.read_text() for path in logs_of(attempt)]
    assert "".join(sorted(texts)).replace(FALLBACK, "") == "x" * 3500
    assert max(map(len, texts)) == 1000


def test_a_flood_comes_through_whole(attempt: Attempt) -> None:
    attempt.shell("seq -f 'line %06g' 0 199999", "--log-keep=999", "--log-max=100000")
    attempt.wait()
    files = sorted(attempt.folder.glob("log.*"), key=lambda path: -int(path.suffix[1:]))
    text = "".join(path.read_text() for path in [*files, attempt.path("log")])
    assert text.removeprefix(FALLBACK) == numbered(200000)


def test_a_flood_does_not_delay_a_stop(attempt: Attempt) -> None:
    attempt.launch("yes", options=["--log-keep=0", "--log-max=100000"])
    until(lambda: "y\ny\n" in attempt.path("log").read_text(), "a flood")
    attempt.stop()
    assert attempt.wait()["signal"] == signal.SIGTERM


def test_a_log_that_never_takes_anything(attempt: Attempt) -> None:
    attempt.path("log").symlink_to("/dev/full")
    attempt.shell("seq -f 'line %06g' 0 9999; exit 3")
    record = attempt.wait()
    assert (record["code"], record["log_dropped"]) == (3, len(numbered(10000)))


def test_a_log_that_cannot_be_opened_is_tried_again(attempt: Attempt, tmp_path: Path) -> None:
    """Writes more than a pipe holds first, so that some of it is certainly dropped."""
    attempt.path("log").mkdir()
    attempt.shell(
        "head -c 300000 /dev/zero | tr '\\0' x; touch lost; until [ -e go ]; do sleep 0.01; done; echo on"
    )
    until((tmp_path / "lost").exists, "output that cannot be written")
    attempt.path("log").rmdir()
    until(attempt.path("log").exists, "another try")
    (tmp_path / "go").touch()
    dropped = attempt.wait()["log_dropped"]
    assert dropped > 100_000
    note = f"pliant-supervise: {dropped} bytes of output are missing here: Is a directory\n"
    assert attempt.path("log").read_text() == note + "x" * (300_000 - dropped) + "on\n"


class SmallDisk:
    """A file system of 128 KiB if root may mount one; otherwise a limit on a file's size."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, self.ballast = folder, folder / "ballast"
        command = ["mount", "-t", "tmpfs", "-o", "size=128k", "none", str(folder)]
        self.mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
        self.error = "No space left on device" if self.mounted else "File too large"
        self.wrap = () if self.mounted else ("sh", "-c", 'ulimit -S -f 128; exec "$@"', "sh")
        if self.mounted:
            self.ballast.write_bytes(bytes(64 * 1024))

    def grow(self, attempt: Attempt) -> None:
        if self.mounted:
            self.ballast.unlink()
        else:
            resource.prlimit(attempt.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)

    def close(self) -> None:
        if self.mounted:
            # An ending process releases its memory before its files.
            unmount = ["umount", str(self.folder)]
            until(
                lambda: not subprocess.run(unmount, capture_output=True, check=False).returncode, "the disk"
            )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path / "disk")
    yield disk
    disk.close()


@pytest.fixture
def attempt_on_small_disk(small_disk: SmallDisk, new_attempt: Callable[..., Attempt]) -> Iterator[Attempt]:
    attempt = new_attempt(small_disk.folder)
    yield attempt
    attempt.clear()


def test_a_full_disk_costs_output_but_neither_the_task_nor_its_record(
    attempt_on_small_disk: Attempt, small_disk: SmallDisk
) -> None:
    attempt = attempt_on_small_disk
    attempt.launch("seq", "-f", "line %06g", "0", "19999", wrap=small_disk.wrap)
    record = attempt.wait()
    text = attempt.output()
    assert record["code"] == 0
    assert text == numbered(20000)[: len(text)]
    assert record["log_dropped"] + len(text) == len(numbered(20000))
    assert record["log_dropped"] > 100_000


def test_when_the_disk_has_room_again_the_log_says_what_is_missing(
    attempt_on_small_disk: Attempt, small_disk: SmallDisk, tmp_path: Path
) -> None:
    attempt = attempt_on_small_disk
    script = "seq -f 'line %06g' 0 19999; touch full; until [ -e go ]; do sleep 0.01; done; echo after"
    attempt.launch("sh", "-c", script, options=["--cwd", str(tmp_path)], wrap=small_disk.wrap)
    until((tmp_path / "full").exists, "a full disk")
    small_disk.grow(attempt)
    attempt.says("bytes of output are missing here")
    (tmp_path / "go").touch()
    record = attempt.wait()
    before, _, after = attempt.output().partition("pliant-supervise: ")
    assert after == f"{record['log_dropped']} bytes of output are missing here: {small_disk.error}\nafter\n"
    if not before[:-1].endswith("\n") and len(before) % 12:
        before = before[:-1]  # the line end before our line
    assert before == numbered(20000)[: len(before)]
    assert len(before) + record["log_dropped"] == len(numbered(20000))

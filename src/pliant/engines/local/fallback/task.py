"""The fallback supervisor's task: start, output, stop, leftovers, record. Follows native/supervise.c."""

import errno
import fcntl
import os
import select
import signal
import struct
import termios
import time

from .log import RETRY_MS, Log, clock_ms, now_ms, write_all
from .processes import descendants, signal_group, signal_process
from .record import Record, describe_lock, json_line, make_fifo, remove

LEFTOVER_MS = 2000  # time for processes that outlive the main process; the grace if that is shorter
RECORD_MS = 300_000  # how long a refused exit.json is tried again
KILL_FAST = 50  # number of rounds of SIGKILL that are 10 ms apart; later ones are 200 ms apart
NAME_BYTES = 512  # of a command or folder named in an error
DRAIN_BYTES = 1 << 20  # the most a pipe holds: after the last writer has ended no more can arrive
RUNNING, ENDING, KILLING = range(3)
HANDLED = (signal.SIGTERM, signal.SIGCHLD)
FRAME = struct.Struct("<cxHIQ")  # of input: kind, length of what follows, stream, bytes sent before it
FRAME_BYTES = 4096  # most bytes of data after one header
TIOCSPTLCK, TIOCGPTPEER = 0x40045431, 0x5441  # termios lacks these names


class Options:
    """The command line; paths and arguments are bytes, as the kernel gave them."""

    def __init__(self) -> None:
        self.dir = self.cwd = self.attempt = b""
        self.lock_fd, self.ready_fd, self.log_keep = -1, -1, 3
        self.grace_ms, self.log_max = 30_000, 16_777_216
        self.tty = self.stdin = False
        self.argv: list[bytes] = []
        self.environment: dict[bytes, bytes] = {}


class Wake:
    """SIGTERM and SIGCHLD as a descriptor to poll."""

    def __init__(self) -> None:
        self.terminate = False
        self.fds = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.fd = self.fds[0]
        signal.set_wakeup_fd(self.fds[1], warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def _on_term(self, *_: object) -> None:
        self.terminate = True

    def take(self) -> bool:
        """True if SIGTERM came since the last call."""
        try:
            while os.read(self.fd, 4096):
                continue
        except BlockingIOError:
            came, self.terminate = self.terminate, False
        return came


class Task:
    """The attempt from its first process to its record."""

    def __init__(self, opt: Options, folder: int, wake: Wake) -> None:
        self.opt, self.folder, self.wake = opt, folder, wake
        self.log = Log(folder, opt.log_max, opt.log_keep)
        self.stage = RUNNING
        self.pid = 0  # the main process; 0 before its start and once reaped: the number may then be reused
        self.done = self.stopped = self.killed = self.out_ended = False
        self.status = self.started_ms = self.stop_ms = self.deadline = self.max_rss_kb = self.kill_rounds = 0
        self.error = b""
        self.exec_fd = self.out_fd = self.slave_fd = -1
        self.input_fd = -1  # frames of input, from the server
        self.feed_fd = -1  # pipe to the task's input; -1 on a terminal (out_fd then) and after its end
        self.typed = b""  # input that the task has not taken yet
        self.sender = (0, 0)  # stream of the last frame, the first byte that it has not sent yet
        self.lock_written = describe_lock(opt.lock_fd)

    def run(self) -> bool:
        """True if exit.json was written."""
        self.log.note("the Python fallback: no compiled supervisor is installed")
        self.started_ms = clock_ms(time.CLOCK_REALTIME)
        error = self.start()
        os.chdir("/")  # frees the folder in which this process was started
        record = Record(self.folder)
        if error:
            self.done, self.status = True, 126 << 8  # as wait4 would give exit code 126
            self.start_failed(*error)
        else:
            self.supervise()
        if self.opt.stdin:
            remove("input", self.folder)
        return self.write_record(record)

    # ---- start

    def ready(self, word: str, text: str) -> None:
        if self.opt.ready_fd >= 0:
            write_all(self.opt.ready_fd, os.fsencode(f"{word} {text}\n"))  # its reader may be gone
            os.close(self.opt.ready_fd)
        self.opt.ready_fd = -1

    def start_failed(self, what: str, name: bytes, number: int) -> None:
        """exit.json, the log and the starter all say why the task could not be started."""
        text = f"{what} {os.fsdecode(name[:NAME_BYTES])}".strip() + f": {os.strerror(number)}"
        self.error = os.fsencode(text)
        if not self.log.note(text):
            self.log.failed(0)
        self.ready("error", text)

    def start(self) -> tuple[str, bytes, int] | None:
        """Starts the task; None, or (step that failed, b"", errno)."""
        what, standard_in = "pipe", 0
        try:
            self.exec_fd, error_write = os.pipe2(os.O_CLOEXEC)
            if self.opt.tty:
                what = "pty"
                self.out_fd = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
                fcntl.ioctl(self.out_fd, TIOCSPTLCK, struct.pack("i", 0))
                # Kept open: without users the terminal would hang up on a task that only closed its output.
                self.slave_fd = fcntl.ioctl(self.out_fd, TIOCGPTPEER, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
                fcntl.ioctl(self.out_fd, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
                standard_out = self.slave_fd
            else:
                self.out_fd, standard_out = os.pipe2(os.O_CLOEXEC)
                os.set_blocking(self.out_fd, False)
            if self.opt.stdin:  # read and write: writers come and go, the input ends when a frame says so
                what = "stdin"
                make_fifo("input", self.folder)
                self.input_fd = os.open("input", os.O_RDWR | os.O_NONBLOCK, dir_fd=self.folder)
                standard_in = self.slave_fd
                if not self.opt.tty:
                    standard_in, self.feed_fd = os.pipe2(os.O_CLOEXEC)
                    os.set_blocking(self.feed_fd, False)
            what = "fork"
            signal.pthread_sigmask(signal.SIG_SETMASK, HANDLED)  # our handlers must not run in the child
            try:
                self.pid = os.fork()
                if self.pid == 0:
                    self.execute(error_write, standard_in, standard_out)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.close(error_write)
            if not self.opt.tty:
                os.close(standard_out)
            if self.feed_fd >= 0:
                os.close(standard_in)
        except OSError as e:
            return what, b"", e.errno or errno.EIO
        return None

    def execute(self, error_fd: int, standard_in: int, standard_out: int) -> None:
        """Runs in the child; never returns. Writes an error to error_fd as `cwd` or `exec` and its errno."""
        step, number = "exec", 0
        try:
            os.setsid()
            if self.opt.tty:
                fcntl.ioctl(self.slave_fd, termios.TIOCSCTTY, 0)
            for name in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(name, signal.SIG_DFL)
            os.dup2(standard_in, 0)
            os.dup2(standard_out, 1)
            os.dup2(standard_out, 2)
            if self.opt.cwd:
                step = "cwd"
                os.chdir(self.opt.cwd)
                step = "exec"
            signal.set_wakeup_fd(-1)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            number = find_and_execute(self.opt.argv, self.opt.environment)
        except OSError as e:
            number = e.errno or errno.EIO
        write_all(error_fd, f"{step} {number}".encode())
        os._exit(127 if number == errno.ENOENT and step == "exec" else 126)

    def exec_result(self) -> None:
        """The exec pipe has closed, with or without an error in it."""
        said = os.read(self.exec_fd, 64).split()
        os.close(self.exec_fd)
        self.exec_fd = -1
        if said:
            step = said[0].decode()
            self.start_failed(step, self.opt.cwd if step == "cwd" else self.opt.argv[0], int(said[1]))
        else:
            self.ready("started", str(self.pid))

    # ---- stop

    def signal_all(self, number: int) -> int:
        """Signals the task's group and every other descendant, SIGTERM once each. Returns 0 if none lives."""
        numbers = (number, signal.SIGCONT) if number == signal.SIGTERM else (number,)
        hit = signal_group(self.pid, number)  # False before the child has made its group
        if number == signal.SIGTERM:
            signal_group(self.pid, signal.SIGCONT)  # a suspended process could not act on SIGTERM
        alive = [process for process in descendants() if not process.dead]
        for process in alive:
            if number == signal.SIGTERM and hit and process.group == self.pid:
                continue
            for each in numbers:
                signal_process(process, each)
        return hit + len(alive)  # the group may be gone before the scan

    def begin_ending(self, grace_ms: int) -> None:
        self.stage = ENDING
        self.deadline = now_ms() + grace_ms
        self.signal_all(signal.SIGTERM)

    def take_signals(self) -> bool:
        """True if SIGTERM was among them."""
        if not self.wake.take():
            return False
        self.stop_ms = self.stop_ms or clock_ms(time.CLOCK_REALTIME)
        if not self.done:
            self.stopped = True
            if self.stage == RUNNING:
                self.begin_ending(self.opt.grace_ms)
        return True

    def reap(self) -> bool:
        """Reaps ended children, adopted ones too. False once there is no child, and so no descendant."""
        while True:
            try:
                info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return False
            if info is None:
                return True
            is_main = info.si_pid == self.pid
            if is_main:
                self.take_signals()  # a stop that came before the end is handled before it
            _, status, usage = os.wait4(info.si_pid, 0)
            self.max_rss_kb = max(self.max_rss_kb, usage.ru_maxrss)
            if is_main:
                if self.exec_fd >= 0:
                    self.exec_result()
                self.status, self.done, self.pid = status, True, 0

    # ---- run

    def copy_output(self, most: int) -> None:
        total = 0
        while total < most and not self.out_ended:
            try:
                data = os.read(self.out_fd, 32768)
            except BlockingIOError:
                return
            except OSError:  # so a terminal reports its end
                data = b""
            self.out_ended = not data
            self.log.output(data)
            total += len(data)

    def read_frame(self) -> bool:
        """Handles the next frame without the bytes that its sender repeats. False if there is none."""
        try:
            head = os.read(self.input_fd, FRAME.size)
            if len(head) != FRAME.size:
                return False
            kind, length, stream, at = FRAME.unpack(head)
            data = os.read(self.input_fd, min(length, FRAME_BYTES)) if length else b""
        except BlockingIOError:
            return False
        if kind == b"W":
            if self.opt.tty:
                size = struct.pack("4H", at & 0xFFFF, at >> 16 & 0xFFFF, 0, 0)
                fcntl.ioctl(self.out_fd, termios.TIOCSWINSZ, size)
            return True
        if kind == b"E":
            data = b"\x04"  # a terminal's end of input; it counts as one byte, so that a repeat is left out
        known = max(0, self.sender[1] - at) if stream == self.sender[0] else 0
        if known >= len(data):
            return True
        self.sender = stream, at + len(data)
        if kind == b"E" and not self.opt.tty:
            if self.feed_fd >= 0:
                os.close(self.feed_fd)
            self.feed_fd = -1
            return True
        self.typed = data[known:]
        return True

    def copy_input(self) -> None:
        for _ in range(64):  # then all other events get their turn
            if not self.typed and not self.read_frame():
                return
            target = self.out_fd if self.opt.tty else self.feed_fd
            try:
                self.typed = self.typed[os.write(target, self.typed) :] if self.typed and target >= 0 else b""
            except BlockingIOError:
                return
            except OSError:
                self.typed = b""  # no process reads it any more

    def tick(self) -> int | None:
        """Does what is due by the clock. Returns the ms until the next such action; None if there is none."""
        now, dues = now_ms(), []
        if self.stage == ENDING and now >= self.deadline:
            self.stage = KILLING
        if self.stage == KILLING and now >= self.deadline:
            self.killed |= self.signal_all(signal.SIGKILL) > 0
            self.deadline = now + (10 if self.kill_rounds < KILL_FAST else 200)
            self.kill_rounds += 1
        if self.stage != RUNNING:
            dues.append(self.deadline)
        if not self.lock_written or self.log.unnoted:
            if now >= self.log.retry_at:
                self.lock_written = self.lock_written or describe_lock(self.opt.lock_fd)
                if self.log.unnoted:
                    self.log.resume()
                self.log.retry_at = now_ms() + RETRY_MS
            dues.append(self.log.retry_at)
        return max(0, min(dues) - now) if dues else None

    def supervise(self) -> None:
        more = True
        while more:
            poll = select.poll()
            poll.register(self.wake.fd, select.POLLIN)
            if self.exec_fd >= 0:
                poll.register(self.exec_fd, select.POLLIN)
            if not self.out_ended:
                typed = self.opt.tty and self.typed
                poll.register(self.out_fd, select.POLLIN | (select.POLLOUT if typed else 0))
            source = self.feed_fd if self.typed else self.input_fd
            if source >= 0:
                poll.register(source, select.POLLOUT if self.typed else select.POLLIN)
            events = dict(poll.poll(self.tick()))
            self.take_signals()
            if self.exec_fd in events:
                self.exec_result()
            if events.get(self.out_fd, 0) & ~select.POLLOUT:
                self.copy_output(1)
            if source in events or events.get(self.out_fd, 0) & select.POLLOUT:
                self.copy_input()
            more = self.reap()
            if more and self.done and self.stage == RUNNING:
                self.begin_ending(min(self.opt.grace_ms, LEFTOVER_MS))
        self.copy_output(DRAIN_BYTES)
        if self.log.unnoted:
            self.log.resume()

    def write_record(self, record: Record) -> bool:
        exited = os.WIFEXITED(self.status)
        text = json_line(
            {
                "version": 1,
                "attempt": self.opt.attempt,
                "code": os.WEXITSTATUS(self.status) if exited else None,
                "signal": None if exited else os.WTERMSIG(self.status),
                "stopped": self.stopped,
                "stop_requested_ms": self.stop_ms or None,
                "started_ms": self.started_ms,
                # A clock that was set back meanwhile must not make a negative duration.
                "ended_ms": max(clock_ms(time.CLOCK_REALTIME), self.started_ms),
                "killed": self.killed,
                "error": self.error or None,
                "log_dropped": self.log.dropped,
                "max_rss_kb": self.max_rss_kb,
            }
        )
        self.take_signals()
        give_up, wait_ms = now_ms() + RECORD_MS, 50
        while not record.write(text):
            if now_ms() >= give_up:
                remove("exit.json.tmp", self.folder)
                return False
            select.select([self.wake.fd], [], [], wait_ms / 1000)
            if self.take_signals():
                give_up = 0  # asked to end: one last try
            wait_ms = min(wait_ms * 2, 2000)
        return True


def find_and_execute(argv: list[bytes], environment: dict[bytes, bytes]) -> int:
    """Executes as execvp does: through PATH, with /bin/sh for a script without `#!`. Returns the errno."""
    name, error = argv[0], errno.ENOENT
    folders = [b""] if b"/" in name else environment.get(b"PATH", b"/bin:/usr/bin").split(b":")
    for folder in folders if name else []:
        path = os.path.join(folder or b".", name) if b"/" not in name else name
        try:
            os.execve(path, argv, environment)
        except OSError as e:
            if e.errno == errno.ENOEXEC:
                os.execve("/bin/sh", [b"/bin/sh", path, *argv[1:]], environment)
            if e.errno == errno.EACCES:
                error = errno.EACCES  # tells more than that the other folders lack it
            elif e.errno not in (errno.ENOENT, errno.ENOTDIR):
                return e.errno or errno.EIO
    return error

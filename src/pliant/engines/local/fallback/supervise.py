"""The task supervisor in Python: a port of native/supervise.c for machines without a C compiler.

Run as `python -S -E supervise.py ...`: it has the same command line, files and guarantees
(docs/reference/attempt.md) and uses about 10 MB per task instead of 1. Names follow the C file, so that the
two can be read side by side.
"""

import sys

if __name__ == "__main__":
    # A package of its own: importing pliant would cost more memory than the supervisor, and with this folder
    # on sys.path a module here could be imported in place of a standard module of the same name.
    __package__ = "supervising"
    sys.modules[__package__] = type(sys)(__package__)
    sys.modules[__package__].__path__ = [__file__.rpartition("/")[0] or "."]
    if not sys.flags.safe_path:
        del sys.path[0]

import ctypes
import fcntl
import os
import signal

from .log import write_all
from .task import NAME_BYTES, Options, Task, Wake

EXIT_LOST, EXIT_REFUSED = 1, 2  # exit.json could not be written; nothing was started
PR_SET_CHILD_SUBREAPER = 36
IGNORED = "HUP INT QUIT PIPE USR1 USR2 TSTP TTIN TTOU XFSZ"
LIMITS = {
    "lock_fd": (0, 2**31 - 1),
    "ready_fd": (0, 2**31 - 1),
    "grace_ms": (0, 10**12),
    "log_max": (1, 10**15),
    "log_keep": (0, 999),
}


class Refused(Exception):
    """The starter's arguments are wrong: nothing runs, and nothing was written."""


def parse(opt: Options, args: list[bytes]) -> None:
    """Fills opt. Raises Refused; options read before the error are set, so that ready_fd can report it."""
    while args and args[0].startswith(b"--"):
        word = os.fsdecode(args.pop(0))
        if word == "--":
            break
        name, equals, text = word.partition("=")
        field = name[2:].replace("-", "_")
        if field in ("tty", "stdin") and not equals:
            setattr(opt, field, True)
            continue
        if "_" in name or field not in ("dir", "cwd", *LIMITS):
            raise Refused(f"{word[:64]}: no such option")
        if not equals and not args:
            raise Refused(f"{name}: its value is missing")
        value = os.fsencode(text) if equals else args.pop(0)
        if field not in LIMITS:
            setattr(opt, field, value)
            continue
        low, high = LIMITS[field]
        number = int(value) if value.isdigit() and len(value) <= 18 else -1
        if not low <= number <= high:
            raise Refused(f"{name}: {os.fsdecode(value[:64])} is not a number between {low} and {high}")
        setattr(opt, field, number)
    opt.argv = args
    with open("/proc/self/environ", "rb") as file:  # not os.environ: Python may have added LC_CTYPE to it
        pairs = [line.partition(b"=") for line in file.read().split(b"\0") if b"=" in line]
    opt.environment = {name: value for name, _, value in pairs}
    opt.attempt = opt.environment.get(b"PLIANT_ATTEMPT", b"")
    if not opt.dir or opt.lock_fd < 0 or not args:
        raise Refused("--dir, --lock-fd and a command are needed")
    if not 0 < len(opt.attempt) <= NAME_BYTES:
        wanted = f"PLIANT_ATTEMPT must be 1 to {NAME_BYTES} bytes long"
        raise Refused(f"{wanted}: by it the task's processes are found")


def check_lock(opt: Options, folder: int) -> None:
    """Raises Refused unless the attempt is ours and has not ended."""
    where = os.fsdecode(opt.dir[:NAME_BYTES])
    try:
        same = os.path.samestat(os.fstat(opt.lock_fd), os.stat("lock", dir_fd=folder))
    except OSError:
        same = False
    if not same:
        raise Refused(f"--lock-fd is not the file {where}/lock")
    try:
        fcntl.flock(
            opt.lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB
        )  # no change if the starter holds it through this
    except OSError as e:
        raise Refused(f"{where}/lock is held by another process: the attempt is running") from e
    try:
        os.stat("exit.json", dir_fd=folder)
    except FileNotFoundError:
        return
    raise Refused(f"{where}/exit.json exists: the attempt has ended")


def own(fd: int) -> int:
    """A duplicate descriptor that the task does not inherit; -1 if fd is not open."""
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    except (OSError, ValueError):  # ValueError: a negative number
        return -1


def keep_only(ours: set[int]) -> None:
    """Closes every descriptor of the starter except `ours`: this process may outlive it by weeks."""
    null = os.open("/dev/null", os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2 and fd not in ours:
            try:
                os.close(fd)
            except OSError:
                continue  # the one that listed the folder


def main() -> int:
    """Returns the exit code."""
    wake = Wake()
    for name in IGNORED.split():
        signal.signal(signal.Signals[f"SIG{name}"], signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    opt = Options()
    try:
        try:
            parse(opt, [os.fsencode(word) for word in sys.argv[1:]])
        finally:
            opt.ready_fd = own(opt.ready_fd)
        opt.lock_fd = own(opt.lock_fd)
        try:
            folder = os.open(opt.dir, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as e:
            raise Refused(f"--dir {os.fsdecode(opt.dir[:NAME_BYTES])}: {e.strerror}") from e
        check_lock(opt, folder)
    except Refused as e:
        print(f"pliant-supervise: {e}", file=sys.stderr)
        if opt.ready_fd >= 0:
            write_all(opt.ready_fd, os.fsencode(f"error {e}\n"))
        return EXIT_REFUSED
    keep_only({opt.lock_fd, opt.ready_fd, folder, *wake.fds})
    with open("/proc/self/comm", "w", encoding="ascii") as file:
        file.write("pliant-superv")
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return 0 if Task(opt, folder, wake).run() else EXIT_LOST


if __name__ == "__main__":
    code = main()
    os._exit(code)  # the lock is released after the record, with the process; nothing is left to flush

"""The fallback supervisor's log: copies output into DIR/log, rotates by size, drops rather than waits."""

import errno
import os
import stat
import time
from contextlib import suppress

RETRY_MS = 250  # between two tries to write a log that refused


SPARE = 4096  # if log-times is more than this many bytes longer than the log, it gets one mark a second
PAUSE_MS = 1000
WORD = b"PLTIMES1"
MARK = 16  # bytes of a mark: offset in the log and ms since the epoch; the header is WORD and the log's inode


def clock_ms(which: int) -> int:
    return time.clock_gettime_ns(which) // 1_000_000


def now_ms() -> int:
    """Ms of the clock for grace and retries, which a change of the machine's time does not affect."""
    return clock_ms(time.CLOCK_MONOTONIC)


def code_of(error: OSError) -> int:
    return error.errno or errno.EIO


def write_all(fd: int, data: bytes) -> tuple[int, int]:
    """(number of bytes written, 0 or the errno that stopped the write)."""
    done = 0
    while done < len(data):
        try:
            done += os.write(fd, data[done:])
        except OSError as e:
            return done, code_of(e)
    return done, 0


class Times:
    """DIR/log-times: when the output that begins at a byte of the log arrived. Errors do not stop the log."""

    def __init__(self, folder: int) -> None:
        self.folder = folder
        self.fd = -1  # -1 when it has to be opened (again)
        self.size = 0  # bytes of whole marks; the next mark is written there
        self.last_ms: int | None = None  # of the last mark

    def begin(self, inode: int) -> None:
        """Open the marks of a log that was just opened."""
        self.close()
        self.last_ms = None
        with suppress(OSError):  # tried again with the next mark
            self.open(inode)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1

    def put(self, at: int, mark: bytes) -> bool:
        """True if the whole mark was written; the next mark overwrites a partial one."""
        if os.pwrite(self.fd, mark, at) != MARK:
            return False
        self.size = at + MARK
        return True

    def open(self, inode: int) -> bool:
        """Raises OSError."""
        if self.fd >= 0:
            return True
        flags = os.O_RDWR | os.O_CREAT | os.O_NOCTTY | os.O_NONBLOCK | os.O_NOFOLLOW
        self.fd = os.open("log-times", flags, 0o600, dir_fd=self.folder)
        header = WORD + inode.to_bytes(8, "little")
        found = os.fstat(self.fd)
        if stat.S_ISREG(found.st_mode):
            self.size = found.st_size - found.st_size % MARK
            if os.pread(self.fd, MARK, 0) == header:
                return True
            os.ftruncate(self.fd, 0)  # new, or of an older log with which it could not be renamed
            if self.put(0, header):
                return True
        self.close()
        return False

    def mark(self, log: int) -> None:
        """Note that what is written next to the log (a descriptor) arrived now."""
        ms = clock_ms(time.CLOCK_REALTIME)
        since = PAUSE_MS if self.last_ms is None else ms - self.last_ms
        found = os.fstat(log)  # each time: the file may have been truncated
        if since == 0 or not stat.S_ISREG(found.st_mode):
            return
        if 0 < since < PAUSE_MS and self.size > found.st_size + SPARE:
            return
        mark = found.st_size.to_bytes(8, "little") + ms.to_bytes(8, "little")
        with suppress(OSError):
            if self.open(found.st_ino) and self.put(self.size, mark):
                self.last_ms = ms


class Log:
    """DIR/log and its rotated predecessors. Never waits or raises; counts the bytes that the disk refuses."""

    def __init__(self, folder: int, most: int, keep: int) -> None:
        self.folder, self.most, self.keep = folder, most, keep
        self.fd = -1  # -1 when it has to be opened (again)
        self.err = 0  # why the last write failed
        self.size = 0  # of the file behind fd
        self.dropped = 0  # bytes of output lost so far
        self.unnoted = 0  # those of them that no line in the log reports yet; 0: the log works
        self.retry_at = 0
        self.midline = False  # the last byte written was not a line end
        self.times = Times(folder)

    def open(self) -> bool:
        if self.fd >= 0:
            return True
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOCTTY | os.O_NONBLOCK
        try:
            self.fd = os.open("log", flags, 0o600, dir_fd=self.folder)
            found = os.fstat(self.fd)
        except OSError as e:
            self.err = code_of(e)
            return False
        regular = stat.S_ISREG(found.st_mode)
        self.size = found.st_size if regular else 0
        if regular:
            self.times.begin(found.st_ino)
        return True

    def put(self, data: bytes) -> int:
        if data and not (self.midline and b"\n" not in data[:-1]):  # a line begins here
            self.times.mark(self.fd)
        done, err = write_all(self.fd, data)
        self.err = err or self.err
        if done:
            self.midline = data[done - 1] != 0x0A
        self.size += done
        return done

    def rotate(self) -> bool:
        try:
            if not self.keep:
                os.ftruncate(self.fd, 0)
            self.shift("log")
        except OSError as e:
            self.err = code_of(e)
            return False
        with suppress(OSError):  # its header shows that it is another log's
            if self.keep:
                self.shift("log-times")
            else:
                os.unlink("log-times", dir_fd=self.folder)
        os.close(self.fd)
        self.fd = -1
        self.midline = False
        return self.open()

    def shift(self, name: str) -> None:
        """NAME becomes NAME.1, NAME.1 becomes NAME.2 and so on. Raises OSError."""
        for i in range(self.keep, 0, -1):
            before = f"{name}.{i - 1}" if i > 1 else name
            with suppress(FileNotFoundError):
                os.rename(before, f"{name}.{i}", src_dir_fd=self.folder, dst_dir_fd=self.folder)

    def note(self, text: str) -> bool:
        """Write a line of the supervisor's own, whole or not at all; True if it was written."""
        line = b"\npliant-supervise: " + os.fsencode(text) + b"\n"
        if not self.open() or (self.size and self.size + len(line) > self.most and not self.rotate()):
            return False
        size, midline = self.size, self.midline
        line = line if midline else line[1:]
        if self.put(line) == len(line):
            return True
        if self.size > size:
            try:
                os.ftruncate(self.fd, size)
            except OSError as e:
                self.err = code_of(e)
        self.size, self.midline = size, midline
        return False

    def failed(self, lost: int) -> None:
        self.dropped += lost
        self.unnoted += lost
        self.retry_at = now_ms() + RETRY_MS
        if self.fd >= 0:
            os.close(self.fd)  # a stale handle never works again: the next try opens the file
        self.fd = -1

    def resume(self) -> bool:
        """After losses: True once a line in the log says how many bytes are missing."""
        if self.note(f"{self.unnoted} bytes of output are missing here: {os.strerror(self.err)}"):
            self.unnoted = 0
            return True
        self.failed(0)
        return False

    def output(self, data: bytes) -> None:
        if self.unnoted and (now_ms() < self.retry_at or not self.resume()):
            self.dropped += len(data)
            self.unnoted += len(data)
            return
        while data and self.open():
            room = max(self.most - self.size, 0)
            cut = len(data)
            if cut > room:  # a file ends with a whole line, unless one line alone is longer than a file
                end = data.rfind(b"\n", 0, room) + 1
                cut = end or (0 if self.size and not self.midline else room)
            done = self.put(data[:cut])
            data = data[done:]
            if done < cut or (data and not self.rotate()):
                break
        if data:
            self.failed(len(data))

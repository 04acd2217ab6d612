"""What the fallback supervisor writes for the engine: its pid into the lock, and exit.json."""

import errno
import os

from .processes import read_file, read_process

RESERVED_BYTES = 8192  # for exit.json while the disk still has room; no record is longer


def json_string(raw: bytes) -> str:
    """A JSON string; non-UTF-8 bytes become U+FFFD. The json module would take more memory than the rest."""
    text = raw.decode("utf-8", "replace").replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(f"\\u{ord(c):04x}" if c < " " or c == "\x7f" else c for c in text) + '"'


def json_line(fields: dict[str, bytes | int | bool | None]) -> bytes:
    """One object on one line, in the order given."""
    words = []
    for name, value in fields.items():
        if isinstance(value, bytes):
            word = json_string(value)
        elif isinstance(value, bool):
            word = "true" if value else "false"
        else:
            word = "null" if value is None else str(value)
        words.append(f'"{name}":{word}')
    return ("{" + ",".join(words) + "}\n").encode()


def describe_lock(fd: int) -> bool:
    """Writes this process's identity into the lock; False if the disk refuses."""
    me = read_process(os.getpid())
    boot = read_file("/proc/sys/kernel/random/boot_id").strip()
    start = me.start if me else 0
    line = json_line({"version": 1, "pid": os.getpid(), "start": start, "boot_id": boot})
    try:
        written = os.pwrite(fd, line, 0) == len(line)
        os.ftruncate(fd, len(line))
    except OSError:
        return False
    return written


def make_fifo(name: str, folder: int) -> None:
    try:
        os.mkfifo(name, 0o600, dir_fd=folder)
    except FileExistsError:
        return  # the starter made it


def remove(name: str, folder: int) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except OSError:
        return  # gone already, or a disk that refuses everything: a leftover file is harmless


class Record:
    """exit.json: complete and on disk under its name, or not there at all."""

    def __init__(self, folder: int) -> None:
        """Reserves the disk space now, so that a disk that fills up later cannot lose the record."""
        self.folder, self.fd, self.renamed = folder, -1, False
        try:
            self.open()
            os.posix_fallocate(self.fd, 0, RESERVED_BYTES)
        except OSError:
            return  # no room, or a file system that cannot reserve: nothing is guaranteed

    def open(self) -> None:
        if self.fd < 0:
            self.fd = os.open("exit.json.tmp", os.O_RDWR | os.O_CREAT, 0o600, dir_fd=self.folder)

    def write(self, text: bytes) -> bool:
        """Tries once to write the record; True if it is on disk."""
        try:
            if not self.renamed:
                self.open()
                if os.pwrite(self.fd, text, 0) != len(text):
                    return False
                os.ftruncate(self.fd, len(text))
                os.fsync(self.fd)
                os.rename("exit.json.tmp", "exit.json", src_dir_fd=self.folder, dst_dir_fd=self.folder)
                self.renamed = True
            os.fsync(self.folder)
        except OSError as e:
            if not self.renamed and self.fd >= 0:
                os.close(self.fd)  # without O_TRUNC the next try finds the same reserved blocks
                self.fd = -1
            return self.renamed and e.errno == errno.EINVAL  # a file system whose folders cannot be synced
        return True

#!/usr/bin/env python3
"""Replaces ssh for mpirun in the pods of one job: the client that mpirun calls, the server in each worker.

Usage: rsh serve, in each worker; rsh [ssh options] HOST COMMAND..., by mpirun. Both know the job's secret.
Every message carries an HMAC of its body and its place in the conversation, keyed by the secret and both
sides' random numbers: others cannot start a command, nor change or replay a message. No encryption. Standard
library only, and nothing newer than Python 3.7: it runs in the image of the job.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any, NoReturn

PORT = 23457
WORD = "PLIANT_TRAIN_TOKEN"
SIZE = 32  # bytes of a random number and of a code
MOST = 1 << 20  # bytes of one message
KNOCK = 10.0  # seconds in which a caller must have sent its command
PATIENCE = 60.0  # seconds to wait for a worker that does not listen yet
RUNNING: set[int] = set()  # process groups


class Broken(Exception):
    """The other side is gone, or does not know the secret."""


class Way:
    """Authenticated messages between two sides that know the secret: a kind of one letter, and bytes."""

    def __init__(self, sock: socket.socket, word: str, *, caller: bool) -> None:
        self._sock, self._caller = sock, caller
        self._sent = self._heard = 0
        self._lock = threading.Lock()
        own = os.urandom(SIZE)
        sock.sendall(own)
        other = self._read(SIZE)
        both = own + other if caller else other + own
        self._key = hmac.new(word.encode(), both, hashlib.sha256).digest()

    def _code(self, caller: bool, place: int, body: bytes) -> bytes:
        said = b"%d %d " % (caller, place) + body
        return hmac.new(self._key, said, hashlib.sha256).digest()

    def _read(self, size: int) -> bytes:
        parts = b""
        while len(parts) < size:
            more = self._sock.recv(size - len(parts))
            if not more:
                raise Broken("the connection has ended")
            parts += more
        return parts

    def send(self, kind: bytes, data: bytes = b"") -> None:
        with self._lock:
            body = kind + data
            code = self._code(self._caller, self._sent, body)
            self._sent += 1
            self._sock.sendall(struct.pack("!I", len(body)) + code + body)

    def hear(self) -> tuple[bytes, bytes]:
        (size,) = struct.unpack("!I", self._read(4))
        if not 0 < size <= MOST:
            raise Broken("it does not speak as this program does")
        code, body = self._read(SIZE), self._read(size)
        if not hmac.compare_digest(code, self._code(not self._caller, self._heard, body)):
            raise Broken("it does not know the word of this job")
        self._heard += 1
        return body[:1], body[1:]


# ---- in a worker ----


def listening(port: int) -> socket.socket:
    """Listens on all addresses, IPv6 and IPv4 where both exist."""
    for family in (socket.AF_INET6, socket.AF_INET):
        try:
            listener = socket.socket(family)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:  # whatever net.ipv6.bindv6only says
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            listener.bind(("", port))
        except OSError:
            if family == socket.AF_INET:
                raise
        else:
            listener.listen(128)
            return listener
    raise AssertionError


def serve(word: str, port: int = PORT) -> NoReturn:
    listener = listening(port)
    signal.signal(signal.SIGTERM, leave)
    while True:
        sock, _ = listener.accept()
        threading.Thread(target=answer, args=(sock, word), daemon=True).start()


def leave(number: int, frame: object) -> NoReturn:
    for group in list(RUNNING):
        end(group)
    os._exit(128 + number)


def end(group: int) -> None:
    with suppress(OSError):  # it has ended
        os.killpg(group, signal.SIGKILL)


def answer(sock: socket.socket, word: str) -> None:
    with sock:
        try:
            sock.settimeout(KNOCK)
            way = Way(sock, word, caller=False)
            said = way.hear()[1]
            command = json.loads(said.decode())["command"]
            sock.settimeout(None)
        except (Broken, OSError, ValueError, KeyError, TypeError) as error:
            print(f"refused a caller: {error}", file=sys.stderr, flush=True)
            return
        with suppress(Broken, OSError):  # the caller is gone, and its command is killed
            run(way, command)


def run(way: Way, command: str) -> None:
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True
    )
    RUNNING.add(process.pid)
    ended = threading.Event()

    def watch() -> None:
        with suppress(Broken, OSError):  # the caller sends no more; this returns when it leaves
            way.hear()
        if not ended.is_set():
            end(process.pid)

    def pump(source: Any, kind: bytes) -> None:
        try:
            for data in iter(lambda: source.read1(65536), b""):
                way.send(kind, data)
        except OSError:
            end(process.pid)

    threading.Thread(target=watch, daemon=True).start()
    outputs = ((process.stdout, b"1"), (process.stderr, b"2"))
    pumps = [threading.Thread(target=pump, args=each, daemon=True) for each in outputs]
    for each in pumps:
        each.start()
    code = process.wait()
    for each in pumps:
        each.join()
    ended.set()
    RUNNING.discard(process.pid)
    way.send(b"X", b"%d" % (code if code >= 0 else 128 - code))


# ---- by mpirun ----


def call(word: str, host: str, command: str, port: int = PORT, patience: float = PATIENCE) -> int:
    """Prints the command's output; returns its exit status, or 255, as ssh does, if it cannot be reached."""
    until = time.time() + patience
    while True:
        try:
            sock = socket.create_connection((host, port), 10)
            break
        except OSError as error:
            if time.time() > until:
                print(f"rsh: {host}: {error}", file=sys.stderr)
                return 255
            time.sleep(0.2)
    outputs = {b"1": sys.stdout.buffer, b"2": sys.stderr.buffer}
    with sock:
        try:
            way = Way(sock, word, caller=True)
            way.send(b"C", json.dumps({"command": command}).encode())
            sock.settimeout(None)
            while True:
                kind, data = way.hear()
                if kind == b"X":
                    return int(data)
                outputs[kind].write(data)
                outputs[kind].flush()
        except (Broken, OSError) as error:
            print(f"rsh: {host}: {error}", file=sys.stderr)
            return 255


def main(words: list[str]) -> int:
    word = os.environ.get(WORD, "")
    if not word:
        print(f"rsh: {WORD} is not set", file=sys.stderr)
        return 255
    if words == ["serve"]:
        serve(word)
    while words and words[0].startswith("-"):
        words = words[2:] if re.match("^-[bceFiIlmopRSw]$", words[0]) else words[1:]
    if len(words) < 2:
        print("rsh: HOST COMMAND... is missing", file=sys.stderr)
        return 255
    return call(word, words[0], " ".join(words[1:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

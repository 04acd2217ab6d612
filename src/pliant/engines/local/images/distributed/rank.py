"""A rank: computes the slices of each step that the leader gives it, until the leader is gone."""

import socket
import struct
import time

import numpy as np

from pliant.engines.local.images.quickstart.digits import Digits, Floats
from pliant.engines.local.images.quickstart.network import loss_and_gradient
from pliant.engines.local.images.quickstart.settings import BATCH, PARAMETERS, SLICES
from pliant.engines.local.images.quickstart.worker import slices_of

ORDER = struct.Struct("<qii")
"""Step, this rank (from 1), number of ranks; the parameters follow."""

PATIENCE = 60.0
"""Seconds for which a rank looks for its leader before it fails."""

_EACH = BATCH // SLICES


def compute(digits: Digits, step: int, pieces: range, parameters: Floats) -> Floats:
    """A row for each slice: its gradient, then the sum of its losses and how many were right."""
    pixels, labels = digits.batch(step)
    rows = np.zeros((len(pieces), PARAMETERS + 2))
    for row, piece in zip(rows, pieces, strict=True):
        part = slice(piece * _EACH, (piece + 1) * _EACH)
        row[PARAMETERS:] = loss_and_gradient(parameters, pixels[part], labels[part], row[:PARAMETERS])
    return rows


def follow(seed: int, leader: tuple[str, int], *, patient: bool = False) -> int:
    """Serve the leader at that address; a patient rank looks for it again when it is gone."""
    digits = Digits(seed)
    while (connection := _connect(leader)) is not None:
        with connection:
            _serve(digits, connection)
        if not patient:
            return 0
    print(f"quickstart-distributed: no leader at {leader[0]}:{leader[1]}", flush=True)
    return 1


def _connect(leader: tuple[str, int]) -> socket.socket | None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            return socket.create_connection(leader, timeout=5)
        except OSError:
            time.sleep(0.1)
    return None


def _serve(digits: Digits, leader: socket.socket) -> None:
    leader.settimeout(None)
    leader.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        while (order := receive(leader, ORDER.size)) is not None:
            step, rank, ranks = ORDER.unpack(order)
            weights = receive(leader, PARAMETERS * 8)
            if weights is None:
                return
            pieces = slices_of(step, rank, ranks)
            leader.sendall(compute(digits, step, pieces, np.frombuffer(weights)).tobytes())
    except OSError:
        return  # the leader went away in the middle of a step


def receive(connection: socket.socket, size: int) -> bytes | None:
    """Exactly `size` bytes; None if the other side has closed the connection."""
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            return None
        parts += part
    return bytes(parts)

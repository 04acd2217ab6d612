"""One worker: computes its slices of each step that it is given, until its parent ends."""

import mmap
import os
import time

from .crew import exchange_bytes
from .digits import Digits
from .exchange import open_exchange
from .memory import take
from .network import loss_and_gradient
from .settings import BATCH, SLICES

_EACH = BATCH // SLICES  # records of a slice


def serve(seed: int, rank: int, workers: int, shared: int) -> None:
    """Be worker `rank` (from 1) of `workers`: orders come from standard input, answers go to stdout."""
    exchange = open_exchange(mmap.mmap(shared, exchange_bytes(workers)), workers)
    digits = Digits(seed)
    if os.environ.get("CUDA_VISIBLE_DEVICES"):
        take(rank, workers)
    ready = time.process_time()
    while order := os.read(0, 8):
        step = int.from_bytes(order, "little")
        pixels, labels = digits.batch(step)
        for piece in slices_of(step, rank, workers):
            part = slice(piece * _EACH, (piece + 1) * _EACH)
            exchange.results[piece] = loss_and_gradient(
                exchange.parameters, pixels[part], labels[part], exchange.gradients[piece]
            )
        exchange.cpu_seconds[rank - 1] = time.process_time() - ready
        try:
            os.write(1, order)
        except BrokenPipeError:
            break  # the parent died during the step
    os._exit(0)  # at once: nothing is buffered, and the parent counts the milliseconds of a stop


def slices_of(step: int, rank: int, workers: int) -> range:
    """The slices that worker `rank` computes; they rotate with the step, so that each has its turn."""
    return range((rank - 1 - step) % workers, SLICES, workers)

"""Integers as people read them."""

from functools import lru_cache

from pliant.model.quantity import GPU, format_bytes, parse_bytes


def gpus(milli: int) -> float:
    """GPUs: 500 -> 0.5, exactly."""
    return milli / GPU


@lru_cache(maxsize=1024)
def quantity(amount: int) -> str:
    """Bytes with a unit if that is exact, else the plain number."""
    text = format_bytes(amount)
    return text if parse_bytes(text) == amount else str(amount)

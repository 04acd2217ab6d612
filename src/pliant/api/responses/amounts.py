"""Integers as people read them."""

from functools import lru_cache

from pliant.model.quantity import GPU, format_bytes, parse_bytes


def gpus(milli: int) -> float:
    """Exactly as many GPUs: 500 -> 0.5."""
    return milli / GPU


@lru_cache(maxsize=1024)
def quantity(amount: int) -> str:
    """Bytes as people write them, if that is exact."""
    text = format_bytes(amount)
    return text if parse_bytes(text) == amount else str(amount)

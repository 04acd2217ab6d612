"""Amounts as integers: milli-GPUs, millicores, bytes, milliseconds; parsers and formatters for them."""

import re
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import NamedTuple

GPU = 1000
"""One whole GPU in milli-GPUs."""

_DECIMAL = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_BYTES = re.compile(r"(\d+(?:\.\d+)?)(k|[KMGTPE]i?)?B?")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Resources(NamedTuple):
    """An amount of everything a project is charged for. Never compare with `<`: use `fits`."""

    gpu: int = 0  # milli-GPUs
    cpu: int = 0  # millicores
    memory: int = 0  # bytes of main memory

    def plus(self, other: "Resources") -> "Resources":
        return Resources(self.gpu + other.gpu, self.cpu + other.cpu, self.memory + other.memory)

    def minus(self, other: "Resources") -> "Resources":
        return Resources(self.gpu - other.gpu, self.cpu - other.cpu, self.memory - other.memory)

    def times(self, count: int) -> "Resources":
        return Resources(self.gpu * count, self.cpu * count, self.memory * count)

    def fits(self, room: "Resources") -> bool:
        """True if this amount is at most `room` in every resource."""
        return self.gpu <= room.gpu and self.cpu <= room.cpu and self.memory <= room.memory


def _scaled(text: str, factor: int, what: str) -> int:
    try:
        value = Decimal(text.strip()) * factor
    except InvalidOperation:
        raise ValueError(f"{text!r} is not {what}") from None
    if not value.is_finite() or value != value.to_integral_value():
        raise ValueError(f"{text!r} is not {what}: at most three decimals")
    return int(value)


def parse_gpus(text: str) -> int:
    """'0.5' -> 500 milli-GPUs; raises ValueError with a sentence for people."""
    return _scaled(text, GPU, "a number of GPUs such as 1 or 0.5")


def parse_cpu(text: str) -> int:
    """'0.1' or '100m' -> 100 millicores."""
    text = text.strip()
    if text.endswith("m") and text[:-1].isdigit():
        return int(text[:-1])
    return _scaled(text, 1000, "a number of cores such as 0.5 or 500m")


def parse_bytes(text: str, *, binary: bool = False) -> int:
    """'5G' -> 5*10^9, '5Gi' -> 5*2^30; with `binary` (simulated nodes) '16G' too means 16 GiB."""
    match = _BYTES.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not an amount of memory such as 500M, 5G or 5Gi")
    number, unit = match[1], match[2] or ""
    if unit in _BINARY:
        factor = _BINARY[unit]
    elif binary and unit:
        factor = _BINARY[unit.upper() + "i"]
    else:
        factor = _DECIMAL[unit]
    return int(Decimal(number) * factor)


def parse_duration(text: str) -> int:
    """'90', '90s', '1h30m', '500ms' -> milliseconds; a bare number is seconds."""
    text = text.strip()
    if text.isdigit():
        return int(text) * 1000
    parts = _DURATION.findall(text)
    if not parts or "".join(n + u for n, u in parts) != text:
        raise ValueError(f"{text!r} is not a duration such as 30s, 5m or 1h30m")
    return int(sum(Decimal(number) * _UNIT_MS[unit] for number, unit in parts))


def format_gpus(milli: int) -> str:
    """Two decimals, as in every table: 500 -> '0.50'."""
    hundredths = (abs(milli) + 5) // 10
    return f"{'-' if milli < 0 else ''}{hundredths // 100}.{hundredths % 100:02d}"


@lru_cache(maxsize=1024)  # there are few different amounts, and every list formats them again
def format_bytes(amount: int) -> str:
    """The shortest exact form people know: 5*10^9 -> '5G', 5*2^30 -> '5Gi', else MiB with one decimal."""
    exact = [
        f"{amount // factor}{unit}"
        for unit, factor in {**_BINARY, **_DECIMAL}.items()
        if unit != "k" and factor > 1 and amount >= factor and amount % factor == 0
    ]
    if exact:
        return min(exact, key=len)
    if amount < 10**6:
        return str(amount)
    tenths = amount * 10 // 2**20
    return f"{tenths // 10}.{tenths % 10}Mi"


def plain(milli: int) -> str:
    """Thousandths as prose has them, without a unit: 2000 -> '2', 2250 -> '2.25', 500 -> '0.5'."""
    return f"{milli / 1000:.3f}".rstrip("0").rstrip(".")


def counted(number: int, noun: str) -> str:
    """1 -> '1 task', 2 -> '2 tasks'."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def spell_gpus(milli: int) -> str:
    """As prose has them: '1 GPU', '2 GPUs', '0.5 GPU', '2.25 GPUs', '0 GPUs'. Tables use format_gpus()."""
    return f"{plain(milli)} GPU{'' if 0 < milli <= GPU else 's'}"


def spell_duration(milliseconds: int) -> str:
    """The two largest units, as prose has them: '12s', '3m12s', '4m', '1h02m', '2d4h'; rounded up."""
    seconds = -(-milliseconds // 1000)
    if seconds < 60:
        return f"{seconds}s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes}m{seconds}s" if seconds else f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h{minutes:02d}m" if minutes else f"{hours}h"
    days, hours = divmod(hours, 24)
    return f"{days}d{hours}h" if hours else f"{days}d"


def listed(words: Iterable[str]) -> str:
    """'a', 'a and b', 'a, b and c'."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def format_duration(milliseconds: int) -> str:
    """Whole units as Go prints them: 3600000 -> '1h0m0s', 90000 -> '1m30s'."""
    seconds = milliseconds // 1000
    hours, rest = divmod(seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    if hours:
        return f"{hours}h{minutes}m{seconds}s"
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"

"""Reads and writes numbers of GPUs, amounts of memory and times."""

import math
import re
import time

import click

_UNITS = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_UNITS |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


def number(text: str, flag: str, example: str) -> float:
    """A plain decimal number >= 0. Raises UsageError."""
    if re.fullmatch(r"-\d+(\.\d+)?", text.strip()):
        raise click.UsageError(f"{flag} {text}: must not be negative.")
    if not re.fullmatch(r"\d+(\.\d+)?|\.\d+", text.strip()):
        raise click.UsageError(f"{flag} {text}: not a number such as {example}.")
    return _finite(float(text), text, flag)


def whole(value: float) -> int | float:
    """1.0 as the int 1, so that JSON has an integer; other values unchanged."""
    return int(value) if value == int(value) else value


def memory(text: str, flag: str) -> int:
    """Bytes; '5G' is 5*10^9, '5Gi' is 5*2^30. Raises UsageError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(k|[KMGTPE]i?)?B?", text.strip())
    if match is None:
        raise click.UsageError(f"{flag} {text}: not an amount of memory such as 500M, 5G or 5Gi.")
    return int(_finite(float(match[1]) * _UNITS[match[2] or ""], text, flag))


def duration(text: str, flag: str) -> float:
    """Seconds of '90', '90s', '5m', '1h30m', '500ms'. Raises UsageError."""
    text = text.strip()
    if text.isdecimal():
        return _finite(float(text), text, flag)
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", text)
    if not parts or "".join(amount + unit for amount, unit in parts) != text:
        raise click.UsageError(f"{flag} {text}: not a time such as 30s, 5m or 1h30m.")
    return _finite(sum(float(amount) * _SECONDS[unit] for amount, unit in parts), text, flag)


def _finite(value: float, text: str, flag: str) -> float:
    """`value`, which `text` was read as. Raises UsageError if a float cannot hold it."""
    if value == math.inf:
        raise click.UsageError(f"{flag} {text[:20]}...: the number is too large.")
    return value


def pair(text: str, flag: str) -> tuple[str, str]:
    """'K=V' -> (K, V). Raises UsageError."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise click.UsageError(f"{flag} {text}: expected NAME=VALUE.")
    return key, value


def show_gpus(value: float | None) -> str:
    """Two decimals, halves away from zero: 0.125 -> 0.13."""
    milli = round((value or 0.0) * 1000)
    hundredths = (abs(milli) + 5) // 10
    return f"{'-' if milli < 0 else ''}{hundredths // 100}.{hundredths % 100:02d}"


def counted_gpus(value: float) -> str:
    """For sentences: '1 GPU', '2 GPUs', '0.5 GPU', '0 GPUs'. Tables use show_gpus()."""
    return f"{f'{value:.3f}'.rstrip('0').rstrip('.')} GPU{'' if 0 < value <= 1 else 's'}"


def counted(number: int, noun: str) -> str:
    """1 -> '1 job', 2 -> '2 jobs'."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def show_bytes(value: float | None) -> str:
    """In GiB with at most one decimal; below 1 GiB in whole MiB; '0' for none."""
    if not value:
        return "0"
    return f"{round(value / 2**30, 1):g}Gi" if value >= 2**30 else f"{value / 2**20:.0f}Mi"


def show_duration(seconds: float | None) -> str:
    """As Go prints it: 3600 -> 1h0m0s."""
    total = int(seconds or 0)
    hours, rest = divmod(total, 3600)
    minutes, left = divmod(rest, 60)
    if hours:
        return f"{hours}h{minutes}m{left}s"
    return f"{minutes}m{left}s" if minutes else f"{left}s"


def moment(text: str) -> float:
    """RFC 3339 -> seconds since the epoch."""
    from datetime import UTC, datetime

    when = datetime.fromisoformat(text)
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def show_moment(when: float) -> str:
    """Seconds since the epoch in local time with its offset: '2026-11-22 09:05:00+01:00'."""
    from datetime import datetime

    return datetime.fromtimestamp(when).astimezone().isoformat(" ", "seconds")


def show_age(since: str | None, now: float | None = None) -> str:
    """The age in one whole unit: 9s, 59m, 23h, 364d, 2y; "" without a time."""
    if not since:
        return ""
    seconds = max(0, int((time.time() if now is None else now) - moment(since)))
    for unit, size, below in (("s", 1, 60), ("m", 60, 3600), ("h", 3600, 86400), ("d", 86400, 365 * 86400)):
        if seconds < below:
            return f"{seconds // size}{unit}"
    return f"{seconds // (365 * 86400)}y"

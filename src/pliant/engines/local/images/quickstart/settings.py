"""The settings that a run reads from its environment, and the fixed shape of the training. No NumPy here."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

BATCH = 64  # records per step, whatever the number of workers
SLICES = 16  # a batch is always computed in this many pieces, in this order; workers share the pieces
PIXELS, HIDDEN, CLASSES = 64, 32, 10
PARAMETERS = PIXELS * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES

DEFAULT_RUN_SECONDS = 960  # the promise is at least 15 minutes
_MOST = 2**32 - 1

ONE_THREAD = {
    f"{library}_NUM_THREADS": "1" for library in ("OPENBLAS", "OMP", "MKL", "BLIS", "NUMEXPR", "VECLIB")
} | {"VECLIB_MAXIMUM_THREADS": "1"}


class SettingsError(ValueError):
    """A variable has a value that cannot be used; the message says which and what it may be."""


@dataclass(frozen=True, slots=True)
class Settings:
    gpus: tuple[str, ...]  # entries of CUDA_VISIBLE_DEVICES; empty: train on the CPU with one worker
    seed: int
    steps: int  # the run ends when this many steps are done, counted over all restarts
    step_seconds: float
    print_every: int
    checkpoint_dir: str | None
    checkpoint_seconds: float  # between two checkpoints of an undisturbed run


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Read the variables that ``__main__`` documents. Raises SettingsError."""
    limited = bool(environment.get("QUICKSTART_STEPS"))
    step_seconds = _seconds(environment, "QUICKSTART_STEP_SECONDS", 0.02 if limited else 0.1)
    enough = math.ceil(DEFAULT_RUN_SECONDS / step_seconds)
    return Settings(
        gpus=visible_gpus(environment.get("CUDA_VISIBLE_DEVICES", "")),
        seed=_whole(environment, "QUICKSTART_SEED", 0, 0, _MOST),
        steps=_whole(environment, "QUICKSTART_STEPS", enough, 1, _MOST),
        step_seconds=step_seconds,
        print_every=_whole(environment, "QUICKSTART_PRINT_EVERY", 1 if limited else 10, 1, _MOST),
        checkpoint_dir=environment.get("PLIANT_CHECKPOINT_DIR") or None,
        checkpoint_seconds=_seconds(environment, "QUICKSTART_CHECKPOINT_SECONDS", 10.0),
    )


def visible_gpus(value: str) -> tuple[str, ...]:
    """The devices that CUDA_VISIBLE_DEVICES=value shows; like CUDA, the first invalid entry ends the list."""
    gpus: list[str] = []
    for entry in value.split(","):
        name = entry.strip()
        if not name or name.startswith("-") or name in ("NoDevFiles", "none", "void"):
            break
        gpus.append(name)
    return tuple(gpus)


def _whole(environment: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    text = environment.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and low <= int(text) <= high):
        raise SettingsError(
            f"{name}={text} is not a whole number from {low} to {high}; leave it out for the default"
        )
    return int(text)


def _seconds(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name, "")
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.001 <= value <= 60:
        raise SettingsError(
            f"{name}={text} is not a number of seconds from 0.001 to 60; leave it out for the default"
        )
    return value

"""`init`: how a process becomes a worker of its job."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import torch

from pliant.train.agent.service import take_over
from pliant.train.master.calls import MasterClient
from pliant.train.worker.job import Job
from pliant.train.worker.snapshot import Keeper


def init(
    *,
    checkpoint_dir: str | Path | Literal[False] | None = None,
    checkpoint_every: int = 0,
    keep_checkpoints: int = 3,
    logical_workers: int = 0,
    max_skipped_records: int = 0,
    device: str | torch.device | None = None,
    on_applied: Callable[[int, Sequence[int]], None] | None = None,
) -> Job:
    """Join the job that the environment names; without one, a world of one.

    checkpoint_dir: default PLIANT_CHECKPOINT_DIR; False for none. checkpoint_every: in steps; 0 for only the
    last. logical_workers: results are bit for bit those of that many workers, whatever the real number.
    on_applied(step, record_ids): each rank calls it after each update, with the rank's own records.
    """
    take_over()
    folder = os.environ.get("PLIANT_CHECKPOINT_DIR") if checkpoint_dir is None else checkpoint_dir
    keeper = Keeper(folder or None, checkpoint_every, keep_checkpoints)
    job = Job(
        MasterClient.from_environment(),
        keeper,
        {"logical_workers": logical_workers, "max_skipped_records": max_skipped_records},
        torch.device(device or _device()),
        on_applied,
    )
    keeper.check()  # after Job(): now an error is reported to the job's master
    return job


def _device() -> str:
    # Drivers of simulated cards count memory and compute nothing: torch would only print a warning.
    return "cuda" if "PLIANT_SIM_CARDS" not in os.environ and torch.cuda.is_available() else "cpu"

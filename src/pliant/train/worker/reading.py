"""Reads the micro-batches of this rank's plan; `workers` processes read ahead of the training.

A resize changes the plan and discards what was read ahead for the old one. A record counts when its
micro-batch is computed, so reading ahead neither loses a record nor counts one twice.
"""

import atexit
import ctypes
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from pliant.train.data.rows import Chance, Rows
from pliant.train.errors import BadData
from pliant.train.worker.steps import Part, Plan

Read = tuple[Any, list[int], dict[int, str]]  # as Rows.whole gives it
Place = tuple[int, int, int, int]  # step, rank, size, number of the micro-batch in its step
_PR_SET_PDEATHSIG = 1


class Reader:
    """Reads one dataset, whose own random draws depend on `seed`, record and epoch."""

    def __init__(
        self,
        rows: Rows,
        seed: int,
        *,
        workers: int = 0,
        prefetch: int = 2,
        pin_memory: bool = False,
    ) -> None:
        self.rows = rows
        self._seed = seed
        self._ahead = _Ahead()
        self._next: Place | None = None  # the one that `_stream` yields next
        self._stream: Iterator[Read] = iter(())
        self._loader: Any = None
        if workers:
            self._loader = DataLoader(
                _Whole(rows),
                batch_size=None,
                sampler=self._ahead,
                num_workers=workers,
                prefetch_factor=prefetch,
                pin_memory=pin_memory,
                collate_fn=_as_it_is,
                worker_init_fn=_die_with_the_trainer,
                persistent_workers=True,
                generator=torch.Generator(),  # its own: starting it must not draw from the script's
            )

    def read(self, plan: Plan, number: int, rank: int, size: int, plan_of: Callable[[int], Plan]) -> Read:
        """Micro-batch `number` of the plan. `plan_of(step)` is this rank's plan for a later step; it raises
        IndexError after the last step."""
        part = plan.parts[number]
        if self._loader is None:
            return self.rows.whole(part.ids, (self._seed, plan.epoch))
        place = (plan.step, rank, size, number)
        if place != self._next:
            self._ahead.start(plan, number, plan_of, self._seed)
            self._stream = iter(self._loader)
            # Registered after torch's own exit handler and so run before it: that one waits 5 s per process.
            atexit.unregister(self.close)
            atexit.register(self.close)
        found = next(self._stream)
        last = number == len(plan.parts) - 1
        self._next = (plan.step + 1, rank, size, 0) if last else (plan.step, rank, size, number + 1)
        return found

    def any_record(self) -> tuple[Any, list[int]]:
        """A batch of the first readable record, and its index. Raises BadData if no record is readable."""
        for index in range(len(self.rows)):
            value, good, _ = self.rows.whole([index])
            if good:
                return value, good
        raise BadData("No record of the dataset can be read")

    def close(self) -> None:
        """End the reading processes."""
        atexit.unregister(self.close)
        self._stream, self._loader, self._next = iter(()), None, None


class _Ahead:
    """The `sampler` of torch's loader: yields the micro-batches to read, in order, from a given one on."""

    def __init__(self) -> None:
        self._parts: Iterator[tuple[Part, Chance]] = iter(())

    def start(self, plan: Plan, number: int, plan_of: Callable[[int], Plan], seed: int) -> None:
        def parts() -> Iterator[tuple[Part, Chance]]:
            now, first = plan, number
            while True:
                for part in now.parts[first:]:
                    yield part, (seed, now.epoch)
                try:
                    now, first = plan_of(now.step + 1), 0
                except IndexError:
                    return

        self._parts = parts()

    def __iter__(self) -> Iterator[tuple[Part, Chance]]:
        return self._parts


class _Whole(Dataset):  # type: ignore[misc]  # torch is not read by the type checker
    """Rows whose "index" is a micro-batch."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def __getitem__(self, wanted: tuple[Part, Chance]) -> Read:
        part, chance = wanted
        return self._rows.whole(part.ids, chance)


def _as_it_is(read: Read) -> Read:
    return read


def _die_with_the_trainer(_number: int) -> None:
    """Runs in a reading process, which inherits the trainer's sockets: if it outlived the trainer, peers and
    master would not notice that the trainer is gone. A SIGTERM from outside asks the trainer to leave, which
    still needs its batches; so this process ends only by the trainer's own SIGTERM, which multiprocessing
    sends at the trainer's end."""
    trainer = multiprocessing.parent_process()
    if trainer is None:
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=_end_when_the_trainer_says, args=(trainer.pid,), daemon=True).start()
    if multiprocessing.get_start_method(allow_none=True) == "forkserver":
        return  # the parent is the fork server, which ends with the trainer; no socket was inherited
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != trainer.pid:  # the trainer died before prctl
        os._exit(1)


def _end_when_the_trainer_says(trainer: int) -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != trainer:
        pass
    os._exit(0)

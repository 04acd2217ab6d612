"""Usage: python -m pliant.engines.local.images.quickstart

Trains a 64-32-10 network on the UCI digits with one worker process per GPU in CUDA_VISIBLE_DEVICES, or one on
the CPU. Batch, sample order and learning rate depend on seed and step only, so the loss of a step is the same
whatever the number of workers, before and after a restart. Each worker takes 96 % of the GPU memory that it
finds free, where there is a driver; the arithmetic is NumPy's. SIGTERM or SIGINT: checkpoint, exit 0.

Environment:
  QUICKSTART_STEPS=N         end after N steps, counted over restarts. Default: as many as take 16 minutes.
  QUICKSTART_STEP_SECONDS=S  one step per S seconds. Default 0.1, or 0.02 when QUICKSTART_STEPS is given;
                             longer wherever a step would cost more than a tenth of a core per worker.
  QUICKSTART_SEED=N          seed of weights, sample order and noise. Default 0.
  QUICKSTART_PRINT_EVERY=K   print every K-th step. Default 10, or 1 when QUICKSTART_STEPS is given. The first
                             step after a start or resume and the last one are always printed.
  QUICKSTART_CHECKPOINT_SECONDS=S  a checkpoint every S seconds, besides those of a stop and of the end.
                             Default 10.
  QUICKSTART_LIBRARY=pliant.train  the same training on PyTorch, with the same losses, whose GPUs may change
                             while it runs. Needs torch. Default numpy; `auto`, which the image
                             quickstart-elastic sets, is pliant.train where torch is installed.
  PLIANT_CHECKPOINT_DIR      folder of the checkpoint, which is read at the start. Without it there are none.

Exit status: 0 finished or stopped, 1 failed, 2 wrong settings or arguments.
"""

import os
import signal
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from .settings import ONE_THREAD, SettingsError, read_settings


def library(environment: Mapping[str, str]) -> str:
    """The library that trains: numpy or pliant.train. Raises SettingsError."""
    name = environment.get("QUICKSTART_LIBRARY") or "numpy"
    if name not in ("auto", "numpy", "pliant.train"):
        raise SettingsError(f"QUICKSTART_LIBRARY={name}: there are numpy, pliant.train and auto")
    if name == "numpy" or find_spec("torch") is not None:  # looks for it only: importing it takes seconds
        return "numpy" if name == "numpy" else "pliant.train"
    if name == "auto":
        return "numpy"
    raise SettingsError(
        f"QUICKSTART_LIBRARY={name}: torch is not installed: pip install torch, or leave it out"
    )


def on_library() -> NoReturn:
    """Replace this process by the training on pliant.train, under an agent if this is a task."""
    training = [sys.executable, str(Path(__file__).parent / "program" / "elastic.py")]
    inside = "PLIANT_ATTEMPT_DIR" in os.environ
    agent = [sys.executable, "-m", "pliant.train.agent", "--"] if inside else []
    os.execv(sys.executable, [*agent, *training])


def main(arguments: list[str]) -> int:
    """Run as the task (no arguments) or as one of its workers; returns the exit status."""
    os.environ.update(ONE_THREAD)  # before NumPy is loaded, and inherited by the workers
    if arguments in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    try:
        settings = read_settings(os.environ)
        trains_with = library(os.environ)
    except SettingsError as error:
        print(f"quickstart: {error}", file=sys.stderr)
        return 2
    if len(arguments) == 4 and arguments[0] == "--worker" and arguments[2] == "--shared-fd":
        rank, workers = (int(part) for part in arguments[1].split("/"))
        from .worker import serve

        serve(settings.seed, rank, workers, int(arguments[3]))
        return 0
    if arguments:
        print(f"quickstart: takes no arguments, got {' '.join(arguments)!r}; see --help", file=sys.stderr)
        return 2
    if trains_with == "pliant.train":
        on_library()
    # Blocked, not handled: a stop waits until the loop asks for it, and workers inherit the block, so that a
    # signal to the whole process group ends them through their parent and never in the middle of a step.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # our parent may have ignored it
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD})
    from .crew import Crew

    with Crew(settings.gpus) as crew:
        from .training import train  # NumPy loads here and in the workers at the same time

        return train(settings, crew)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`python -m pliant.train.elasticdl master|worker|local|run --flag=value...`."""

import sys
from collections.abc import Sequence

from pliant.train.errors import TrainError

USAGE = """\
usage: python -m pliant.train.elasticdl ROLE --flag=value...
  master   the task that leads a job: membership, ledger, result
  worker   a task that trains: an agent with one process on each of its devices
  local    a whole job on this machine, without a scheduler
  run      one process of a worker; its agent starts it"""


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 for success or a task told to leave, 2 for a wrong command line."""
    words = list(sys.argv[1:] if argv is None else argv)
    role = words[0] if words else ""
    if role not in ("master", "worker", "local", "run"):
        print(USAGE, file=sys.stderr)
        return 2
    from pliant.train.elasticdl.flags import parse

    flags = parse(words[1:])
    if role == "run":  # the job itself reports errors in here to the master
        from pliant.train.torch_start import import_torch

        import_torch(optimizers=flags.mode == "train")
        from pliant.train.elasticdl.script import run

        run(flags)
        return 0
    from pliant.train.elasticdl import tasks

    try:
        return {"master": tasks.lead, "worker": tasks.work, "local": tasks.local}[role](flags, words[1:])
    except TrainError as error:
        print(f"elasticdl: {error}", file=sys.stderr, flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())

"""Usage: python -m pliant.engines.local.images.distributed

The quickstart's network, trained by ranks that sit in different tasks. As the launcher of an MPI job it
starts one rank per slot in each worker, by the agent that mpirun would use; in a PyTorch job every task is a
rank (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), and rank 0 leads. The leader adds up gradients in a fixed
order, so the loss of a step is the quickstart's, whatever the number of ranks; ranks may come and go.

Environment: QUICKSTART_STEPS, QUICKSTART_STEP_SECONDS, QUICKSTART_SEED, QUICKSTART_PRINT_EVERY and
PLIANT_CHECKPOINT_DIR as in the quickstart. Exit status: 0 finished or stopped, 1 failed, 2 wrong settings.
"""

import os
import sys

from pliant.engines.local.images.quickstart.settings import ONE_THREAD, SettingsError, read_settings


def main(arguments: list[str]) -> int:
    os.environ.update(ONE_THREAD)  # before NumPy is loaded
    if arguments in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    if arguments and not (len(arguments) == 2 and arguments[0] == "--rank-of"):
        print(f"quickstart-distributed: takes no arguments, got {' '.join(arguments)!r}", file=sys.stderr)
        return 2
    try:
        settings = read_settings(os.environ)
    except SettingsError as error:
        print(f"quickstart-distributed: {error}", file=sys.stderr)
        return 2
    from . import leader, rank

    if arguments:
        host, _, port = arguments[1].rpartition(":")
        return rank.follow(settings.seed, (host, int(port)))
    if leader.AGENT in os.environ:
        return leader.launch(settings)
    master = (os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "0")))
    if int(os.environ.get("RANK", "0")):
        return rank.follow(settings.seed, master, patient=True)
    return leader.lead(settings, master, int(os.environ.get("WORLD_SIZE", "1")))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

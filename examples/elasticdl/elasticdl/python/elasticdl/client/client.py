"""The program `elasticdl` at the path that ElasticDL's guide runs.

It adds one thing: where /data/mnist could not be written, it takes the digits from a folder of the user's.
"""

import os
import sys
from pathlib import Path

from pliant.cli.elasticdl import main

MOUNT = "/data/mnist"
FOLDER = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "pliant" / "mnist"


def mapped(word: str) -> str:
    """A word of the command line, with MNIST's folder replaced by FOLDER if only that exists."""
    flag, equal, path = word.rpartition("=")
    own = path.replace(MOUNT, str(FOLDER), 1)
    if not path.startswith(MOUNT) or Path(path).exists() or not Path(own).exists():
        return word
    print(f"{MOUNT} is {FOLDER} here: `make data` has written the digits there", file=sys.stderr)
    return f"{flag}{equal}{own}"


if __name__ == "__main__":
    sys.exit(main([mapped(word) for word in sys.argv[1:]]))

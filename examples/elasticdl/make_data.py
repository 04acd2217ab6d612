"""Writes the bundled digits in MNIST's shape as record files: python make_data.py [/data/mnist] [60000].

A record is 28 x 28 bytes of grey and one byte that is the label, as the codec `bytes` reads them. If the
folder cannot be written, it uses one of the user's, which this example's client knows.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pliant.train import write_records
from pliant.train.elasticdl.source import open_records

OWN = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "pliant" / "mnist"
RECORDS_PER_FILE = 16384


def write(folder: Path, records: Sequence[bytes]) -> None:
    """Writes the records, RECORDS_PER_FILE in a file."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, start in enumerate(range(0, len(records), RECORDS_PER_FILE)):
        write_records(folder / f"data-{number:05}", records[start : start + RECORDS_PER_FILE])


def main(argv: Sequence[str]) -> int:
    wanted = Path(argv[0] if argv else "/data/mnist")
    count = argv[1] if len(argv) > 1 else "60000"
    train, test = open_records(f"digits:{count}", "records"), open_records("digits:test", "records")
    for folder in (wanted, OWN):
        try:
            write(folder / "train", train)
            write(folder / "test", test)
        except OSError as error:
            print(f"{folder} cannot be written: {error.strerror}", file=sys.stderr)
            continue
        print(f"{len(train)} records are in {folder / 'train'}, {len(test)} in {folder / 'test'}")
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Moves a store from the state folder's file to PostgreSQL, or back: `python -m pliant.store.move`.

The server must have ended. Its tasks keep running, and the server finds them again with the other store,
because ids, attempt numbers and the epoch are the same there.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from pliant.store import migrate
from pliant.store.archive import backup, restore
from pliant.store.connect import connect, locate
from pliant.store.errors import StoreError
from pliant.store.folder import StateFolder

FILE = "file"
"""The target that means the state folder's own file."""


def check(folder: StateFolder, target: str) -> None:
    """Raise StoreError unless the store could be moved there."""
    if target == FILE:
        if isinstance(folder.address, Path):
            raise StoreError(f"{folder.path} keeps its state in a file already")
        return
    place = locate(target)
    if isinstance(place, Path):
        raise StoreError(f"{target} is no address of PostgreSQL: postgresql://USER@HOST/DATABASE")
    folder.check_address(target)
    if not isinstance(folder.address, Path):
        raise StoreError(f"{folder.path} keeps its state in {folder.address} already")
    with closing(connect(place)) as link, link.reading() as connection:
        if migrate.version(connection, link.name) is not None:
            raise StoreError(f"{link.name} holds a store already: use an empty database")


def move(folder: StateFolder, target: str) -> None:
    """Moves the store. Raises StoreError; then the store stays where it was."""
    check(folder, target)
    lock = folder.lock(take_over=False)
    try:
        with tempfile.TemporaryDirectory(prefix=".move.", dir=folder.path) as scratch:
            copy = Path(scratch) / "store"
            with closing(connect(locate(folder.address))) as link:
                migrate.upgrade(link, lambda _: None)
                backup(link, copy)
            restore(copy, folder.database if target == FILE else target, overwrite=target == FILE)
        folder.choose(None if target == FILE else target)
        if target != FILE:
            folder.database.replace(f"{folder.database}.moved")
    finally:
        os.close(lock)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="pliant.store.move")
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--check", action="store_true", help="only see whether it could be moved")
    parser.add_argument("target")
    given = parser.parse_args(argv)
    try:
        (check if given.check else move)(StateFolder(given.state.absolute()), given.target)
    except (StoreError, OSError) as error:
        sys.stderr.write(f"pliant: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Checks that a task's command is a program that can be started, by the same lookup as the task's own."""

import difflib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from pliant.control.errors import BadRequest, NoCommand, NotExecutable

RECENT = 0.2
"""Seconds for which a found command is not looked up again: each look at a file releases Python's lock, and
100 submissions of one command cause 1,000 looks. A missing command is always looked up."""

MOST = 1000
"""Most found commands that are remembered."""


class Commands:
    """Finds commands. Safe to call from any thread."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], float] = {}  # (word, PATH, folder): when, monotonic

    def problem(self, word: str, env: Mapping[str, str], cwd: str) -> BadRequest | None:
        """Why a task with this environment and working directory could not execute `word`; None: it could.

        Relative folders count from the working directory, as they do after chdir.
        """
        asked, now = (word, env.get("PATH") or os.defpath, cwd), time.monotonic()
        if now - self._found.get(asked, -RECENT) < RECENT:
            return None
        problem = _problem(*asked)
        if problem is None:
            if len(self._found) >= MOST:
                self._found.clear()
            self._found[asked] = now
        return problem


def _problem(word: str, path: str, cwd: str) -> BadRequest | None:
    if "/" in word:
        return _file_problem(word, Path(cwd, word))
    folders = [os.path.join(cwd, part) for part in path.split(os.pathsep)]
    found = ""
    for path in (os.path.join(folder, word) for folder in folders):  # for each submission; Path costs more
        if os.path.isfile(path):
            if os.access(path, os.X_OK):
                return None
            found = found or str(Path(path))
    if found:
        return NotExecutable(f"{found} is not executable: chmod +x {found}.")
    missing = f"command {word!r} not found in the job's PATH."
    if Path(cwd, word).is_file():
        return NoCommand(f"{missing} Did you mean './{word}'?")
    near = difflib.get_close_matches(word, set(_programs(folders)), 1)
    return NoCommand(f"{missing} Did you mean {near[0]!r}?" if near else missing)


def _file_problem(word: str, path: Path) -> BadRequest | None:
    try:
        if path.is_dir():
            return NotExecutable(f"{word} is a directory, not a program.")
        if not path.exists():
            return NoCommand(f"command {word} does not exist.")
    except OSError as error:
        return NoCommand(f"command {word} cannot be read: {error.strerror}.")
    return None if os.access(path, os.X_OK) else NotExecutable(f"{word} is not executable: chmod +x {word}.")


def _programs(folders: list[str]) -> Iterator[str]:
    for folder in folders:
        try:
            yield from os.listdir(folder)
        except OSError:
            continue  # a missing folder in PATH is skipped, as in a shell

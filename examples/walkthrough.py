"""Reads and plays the pages of docs/walkthroughs; their README describes the notation.

A page is a list of commands as a user types them, some followed by what must then be seen. Playing needs a
Stage: a private folder with the server's state, the user's settings and a home folder.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "walkthroughs"
DEADLINE = 240.0  # seconds within which a promised state must be seen
_LOOKS = {"describe", "exec", "get", "list", "logs", "queue", "status", "top", "what-if", "why"}
_FENCE = re.compile(r"```(\w+)(?: +(.*))?$")


@dataclass(frozen=True, slots=True)
class Expected:
    """What must be seen after a command."""

    kind: (
        str  # rows: of a printed table, in any order | says: lines of output | fails: an error and its words
    )
    line: int  # in the page, from 1
    lines: tuple[str, ...]  # rows: first the header of the columns to compare, two or more spaces apart
    code: int = 0  # the command's exit code


@dataclass(frozen=True, slots=True)
class Command:
    """A line typed at a shell."""

    text: str
    line: int
    expected: Expected | None = None
    notice: str = ""  # what to notice in what is seen

    @property
    def open(self) -> bool:
        """True if the next line belongs to it."""
        return self.text.endswith("\\")

    @property
    def looks(self) -> bool:
        """True if it changes nothing, so that it may be repeated until it shows what is expected."""
        words = self.text.split()
        return not _LOOKS.isdisjoint(words[1:4]) or "--dry-run" in words


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        return self.out + self.err


@dataclass(frozen=True, slots=True)
class Seen:
    """A command that was typed, and the difference from what the page says; empty: none."""

    command: Command
    done: Done
    problem: str = ""


class PageError(ValueError):
    """A page violates the notation; the message says where."""


def editions(text: str) -> tuple[str, ...]:
    """Names of the page's editions (spellings of one walk-through) in order; one without a name if none."""
    found: dict[str, None] = {}
    for line in text.splitlines():
        if (fence := _FENCE.match(line)) and fence[1] in ("console", "rows", "says"):
            found |= dict.fromkeys((fence[2] or "").split())
    return tuple(found) or ("",)


def parse(text: str, edition: str = "") -> list[Command]:
    """The commands of one edition. Raises PageError."""
    commands: list[Command] = []
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if line.startswith("> ") and commands:
            notice = f"{commands[-1].notice} {line[2:]}".strip()
            commands[-1] = replace(commands[-1], notice=notice)
        if not (fence := _FENCE.match(line)):
            continue
        body: list[tuple[int, str]] = []
        for inside in lines:
            if inside[1] == "```":
                break
            body.append(inside)
        else:
            raise PageError(f"line {number}: this block has no end")
        kind, words = fence[1], (fence[2] or "").split()
        if kind == "console" and (not words or edition in words):
            for at, typed in body:
                if commands and commands[-1].open:
                    commands[-1] = replace(commands[-1], text=f"{commands[-1].text}\n{typed}")
                elif not typed.startswith("$ "):
                    raise PageError(f"line {at}: a console block holds lines that begin with `$ `")
                else:
                    commands.append(Command(typed[2:], at))
        elif kind in ("rows", "says") and (not words or edition in words):
            _expect(commands, Expected(kind, number, tuple(inside for _, inside in body)))
        elif kind == "fails":
            code = int(words[0]) if words else 1
            _expect(commands, Expected(kind, number, tuple(inside for _, inside in body), code))
    return commands


def _expect(commands: list[Command], expected: Expected) -> None:
    if not commands or commands[-1].expected:
        raise PageError(f"line {expected.line}: a block of {expected.kind} belongs to one command before it")
    if expected.kind == "rows" and not commands[-1].looks:
        raise PageError(f"line {expected.line}: {commands[-1].text!r} is not known to print a table")
    commands[-1] = replace(commands[-1], expected=expected)


def cells(line: str) -> list[str]:
    """The cells of an expected row."""
    return re.split(r" {2,}", line.strip())


def fits(pattern: str, text: str) -> bool:
    """True if text is pattern, in which * stands for anything."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.DOTALL) is not None


def says(pattern: str, output: str) -> bool:
    """True if a line of output holds pattern; the width of spaces does not count."""
    wanted = f"*{' '.join(pattern.split())}*"
    return any(fits(wanted, " ".join(line.split())) for line in output.splitlines())


def table(stage: "Stage", command: str, header: Sequence[str]) -> tuple[list[list[str]], Done]:
    """The named columns of the table that a command prints, row by row, and how the command ended."""
    done = stage.run(command)
    lines = [line for line in done.out.splitlines() if not re.fullmatch("─*", line)]
    for number, line in enumerate(lines):
        titles = [(found.start(), found[0]) for found in re.finditer(r"\S+(?: \S+)*", line)]
        if set(header) <= {title for _, title in titles}:
            ends = [start for start, _ in titles[1:]] + [None]
            spans = {title: slice(start, end) for (start, title), end in zip(titles, ends, strict=True)}
            return [[row[spans[title]].strip() for title in header] for row in lines[number + 1 :]], done
    return [], done


Reader = Callable[["Stage", str, Sequence[str]], tuple[list[list[str]], Done]]


def matches(expected: Sequence[Sequence[str]], rows: Sequence[Sequence[str]]) -> bool:
    """True if every expected row fits a row of its own, and none is left."""
    if not expected:
        return not rows
    first, rest = expected[0], expected[1:]
    for place, row in enumerate(rows):
        if all(map(fits, first, row)) and matches(rest, [*rows[:place], *rows[place + 1 :]]):
            return True
    return False


@dataclass(slots=True)
class Stage:
    """Where a page is played: `folder` (made if missing) holds the files of server and user."""

    folder: Path
    programs: Path = Path(sys.executable).parent  # where `pliant` and `runai` are installed
    env: dict[str, str] = field(init=False)
    where: Path = field(init=False)  # the folder in which commands are typed

    def __post_init__(self) -> None:
        self.folder = self.folder.resolve()
        self.where = self.home
        for folder in (self.home, self.run_folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        others = ("PLIANT_", "RUNAI_", "XDG_", "QUICKSTART_")
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(others)}
        self.env |= {
            "HOME": str(self.home),
            "XDG_RUNTIME_DIR": str(self.run_folder),
            "PLIANT_STATE": str(self.state),
            "PLIANT_CONFIG": str(self.folder / "config.json"),
            "PATH": f"{self.programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        }

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def run_folder(self) -> Path:
        """XDG_RUNTIME_DIR: files that are otherwise in memory; removed with the rest."""
        return self.folder / "run"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def run(self, command: str, timeout: float = 240.0) -> Done:
        """Type a command. One that takes longer than `timeout` seconds ends with code -9."""
        try:
            done = subprocess.run(
                ["sh", "-c", command],
                check=False,
                cwd=self.where,
                env=self.env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout,
            )
        except subprocess.TimeoutExpired:
            return Done(-9, "", f"it did not end within {timeout:g} s")
        return Done(done.returncode, done.stdout, done.stderr)

    def enter(self, folder: str) -> Done:
        """`cd`, for all commands that follow; a page means folders of this repository."""
        if not (ROOT / folder).is_dir():
            return Done(1, "", f"cd: there is no folder {ROOT / folder}")
        self.where = ROOT / folder
        return Done(0, "", "")

    def processes(self) -> dict[int, str]:
        """Process id -> command line of live processes started from here: server, supervisors, tasks."""
        mark = f"{self.folder}/".encode()
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    line = (entry / "cmdline").read_bytes()
                    if mark in (entry / "environ").read_bytes() or mark in line:
                        found[int(entry.name)] = line.replace(b"\0", b" ").decode(errors="replace").strip()
                except OSError:
                    continue  # it ended while we looked, or it is another user's
        return found

    def close(self, patience: float = 30.0) -> dict[int, str]:
        """Take the server down and end what is left. Returns what `pliant down` had left behind."""
        if self.state.exists():
            self.run("pliant down --yes")
        left = self.processes()
        end = time.monotonic() + patience
        while left and time.monotonic() < end:
            time.sleep(0.1)
            left = self.processes()
        while alive := self.processes():
            for process in alive:
                try:
                    os.kill(process, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.02)
        return left


def play(
    commands: Sequence[Command], stage: Stage, *, read: Reader = table, deadline: float = DEADLINE
) -> Iterator[Seen]:
    """Type one command after the other; what is expected must be seen within `deadline` seconds.

    A problem does not stop it: the caller decides.
    """
    for command in commands:
        began = time.monotonic()
        seen = _once(command, stage, read)
        while seen.problem and command.looks and (waited := time.monotonic() - began) < deadline:
            time.sleep(min(1.0, max(0.1, waited / 8)))  # each look starts a program, which slows the rest
            seen = _once(command, stage, read)
        yield seen


def _once(command: Command, stage: Stage, read: Reader) -> Seen:
    expected = command.expected
    if expected and expected.kind == "rows":
        header, *rows = [cells(line) for line in expected.lines]
        found, done = read(stage, command.text, header)
        good = done.code == 0 and matches(rows, found)
        return Seen(command, done, "" if good else _difference("\n".join(expected.lines), done))
    where = command.text.removeprefix("cd ")
    done = stage.run(command.text) if where == command.text else stage.enter(where)
    code = expected.code if expected else 0
    missing = [line for line in expected.lines if not says(line, done.said)] if expected else []
    if done.code == code and not missing:
        return Seen(command, done)
    wanted = f"exit code {code}" + "".join(f"\n{line}" for line in missing)
    return Seen(command, done, _difference(wanted, done))


def _difference(wanted: str, done: Done) -> str:
    return f"expected:\n{wanted}\nseen (exit code {done.code}):\n{done.said.rstrip()}"

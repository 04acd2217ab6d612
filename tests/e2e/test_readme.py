"""The blocks of README.md and of getting started work as described, both pasted at once into a terminal in a
fresh home and typed line by line."""

import contextlib
import fcntl
import os
import re
import select
import struct
import subprocess
import termios
import time
from pathlib import Path

import pytest

from examples.walkthrough import Stage

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
GETTING_STARTED = ROOT / "docs" / "guide" / "getting-started.md"
CODE = "[exit code "
PROMPTED = b"]\r\n$ "
"""The output after a command's end, with the next prompt."""
LIMIT = 240.0
TRAIN = (
    "import sys\nprint('epochs', sys.argv[2] if sys.argv[1:] else 1)\nopen('best.pt', 'w').write('weights')\n"
)


def blocks(title: str) -> list[str]:
    """The shell blocks of a section."""
    text = README.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"```sh\n(.*?)```", text, re.S)


WAYS = pytest.mark.parametrize("slowly", [False, True], ids=["pasted", "typed"])


def enter(stage: Stage, text: str, *, slowly: bool) -> str:
    """The output of an interactive shell that gets all lines at once, as from a paste: a command that reads
    its input takes the lines that follow. `slowly`: each line once the one before has ended. Asserts that
    each command ends with 0."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 220, 0, 0))
    shell = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],
        cwd=stage.where,
        env={**stage.env, "PS1": "$ ", "PROMPT_COMMAND": f'echo "{CODE}$?]"', "TERM": "dumb"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    lines = [f"{line}\n".encode() for line in (*text.rstrip().splitlines(), "exit 0")]
    pasted, typed, shown, end = b"" if slowly else b"".join(lines), 0, b"", time.monotonic() + LIMIT
    try:
        while time.monotonic() < end:
            if slowly and not pasted and lines[typed:] and shown.count(PROMPTED) > typed:
                pasted, typed = lines[typed], typed + 1
            can_read, can_write, _ = select.select([ours], [ours] if pasted else [], [], 1)
            if can_write:
                pasted = pasted[os.write(ours, pasted[:1000]) :]
            if can_read:
                with contextlib.suppress(OSError):  # EIO: the shell has ended
                    if data := os.read(ours, 65536):
                        shown += data
                        continue
                break
        code = shell.wait(max(0.0, end - time.monotonic()))
    finally:
        shell.kill()
        os.close(ours)
    said = shown.decode("utf-8", "replace").replace("\r", "")
    codes = re.findall(rf"{re.escape(CODE)}(\d+)]$", said, re.M)  # also after an unfinished line of a log
    assert code == 0 and set(codes) == {"0"}, said
    assert len(codes) > len([line for line in text.splitlines() if line.strip()]), said
    return said


@pytest.fixture
def project(stage: Stage) -> Path:
    folder = stage.where
    (folder / "train.py").write_text(TRAIN)
    return folder


@WAYS
def test_your_own_script(stage: Stage, project: Path, slowly: bool) -> None:
    [block] = blocks("Your own script")
    typed = block.replace("pliant up ", "pliant up --simulate 1x2 ")  # regardless of this machine's GPUs
    shown = enter(stage, f"{typed}\npliant delete night", slowly=slowly)
    assert re.search(r"^epochs 1$", shown, re.M), "run shows what the script prints"
    assert re.search(r"^epochs 100$", shown, re.M), "logs -f shows what the script prints"
    assert len(re.findall(r"^ ?\d+ +\S+ +Succeeded ", shown, re.M)) == 2, shown
    assert (project / "best.pt").exists(), "results stay"


@WAYS
def test_sharing(stage: Stage, slowly: bool) -> None:
    [block] = blocks("Sharing")
    first, second = enter(stage, block, slowly=slowly).split("Showing jobs for project team-a\n")[1:]
    assert re.search(r"^elastic1 .* 2\.00 \(1\.00\)", first, re.M), first
    assert re.search(r"^elastic1 .* 1\.00 \(1\.00\)", second, re.M), second
    assert re.search(r"^filler1 +Running", second, re.M), second


@WAYS
def test_getting_started(stage: Stage, slowly: bool) -> None:
    page = GETTING_STARTED.read_text("utf-8")
    typed = "\n".join(
        re.findall(r"^\$ (.*)$", "".join(re.findall(r"```console\n(.*?)```", page, re.S)), re.M)
    )
    shown = enter(stage, typed, slowly=slowly)
    assert re.search(r"^hello from a script$", shown, re.M), shown
    assert "again succeeded" in shown
    assert re.search(r"^digits +Training +Pending +default .*0\.00", shown, re.M), shown
    assert re.search(r"^a1 +Training +Running +team-a .*1\.00", shown, re.M), shown
    assert "Needs 2 GPUs" in shown.partition("$ pliant why digits -p default")[2]


def test_no_shell_block_is_left_out() -> None:
    """The tests above paste every shell block of README.md."""
    assert README.read_text("utf-8").count("```sh\n") == len(blocks("Your own script") + blocks("Sharing"))

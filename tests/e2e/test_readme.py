"""The blocks of README.md, pasted into a shell at once, in a fresh home, give what they promise."""

import re
from pathlib import Path

import pytest

from examples.walkthrough import Stage

README = Path(__file__).parents[2] / "README.md"
TRAIN = (
    "import sys\nprint('epochs', sys.argv[2] if sys.argv[1:] else 1)\nopen('best.pt', 'w').write('weights')\n"
)


def blocks(title: str) -> list[str]:
    """The shell blocks of a section."""
    text = README.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"```sh\n(.*?)```", text, re.S)


@pytest.fixture
def project(stage: Stage) -> Path:
    folder = stage.where
    (folder / "train.py").write_text(TRAIN)
    return folder


def test_your_own_script(stage: Stage, project: Path) -> None:
    [block] = blocks("Your own script")
    typed = block.replace("pliant up ", "pliant up --simulate 1x2 ")  # whatever GPUs this machine has
    done = stage.run(f"set -e\n{typed}\npliant delete night")
    assert done.code == 0, done.said
    assert re.search(r"^epochs 1$", done.out, re.M), "run shows what the script prints"
    assert re.search(r"^epochs 100$", done.out, re.M), "logs -f shows what the script prints"
    assert len(re.findall(r"^ ?\d+ +\S+ +Succeeded ", done.out, re.M)) == 2, done.out
    assert (project / "best.pt").exists(), "results stay"


def test_sharing(stage: Stage) -> None:
    [block] = blocks("Sharing")
    done = stage.run(f"set -e\n{block}")
    assert done.code == 0, done.said
    first, second = done.out.split("Showing jobs for project team-a\n")[1:]
    assert re.search(r"^elastic1 .* 2\.00 \(1\.00\)", first, re.M), first
    assert re.search(r"^elastic1 .* 1\.00 \(1\.00\)", second, re.M), second
    assert re.search(r"^filler1 +Running", second, re.M), second

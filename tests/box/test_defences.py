"""The page of defences lists defences.py, and each test fails once its defence is taken out."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hatch_build import PARTS, compile_part, compiler
from tests.box.conftest import requirements
from tests.box.defences import DEFENCES, table

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "reference" / "security.md"


@pytest.fixture(autouse=True)
def nothing_left():
    """No warden is needed here."""


def test_the_page_shows_them_all():
    assert table() in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("one", DEFENCES, ids=lambda one: one.taken_out)
def test_a_defence_is_where_it_is_said_to_be(one):
    assert (REPOSITORY / one.file).read_text(encoding="utf-8").count(one.old) == 1
    file, _, name = one.test.partition("::")
    text = (REPOSITORY / "tests" / file).read_text(encoding="utf-8")
    assert not name or f"def {name}(" in text


def without(one, folder):
    """(A product file without that defence, the file that it replaces)."""
    text = (REPOSITORY / one.file).read_text(encoding="utf-8").replace(one.old, one.new)
    if not one.file.startswith("native/"):
        made = folder / Path(one.file).name
        made.write_text(text, encoding="utf-8")
        return made, REPOSITORY / one.file
    shutil.copytree(REPOSITORY / "native", folder / "native")
    (folder / one.file).write_text(text, encoding="utf-8")
    part = next(part for part in PARTS if one.file in part.sources)
    said = compile_part(compiler(), folder, part)
    assert said is None, said
    return folder / part.target, REPOSITORY / part.target


def run(view, test):
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", f"tests/{test}"]
    return subprocess.run(
        [*view, *words], cwd=REPOSITORY, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("one", DEFENCES, ids=lambda one: one.taken_out)
def test_its_test_fails_without_it(one, tmp_path):
    """The changed file covers the real one in a mount namespace of its own; nothing else sees it."""
    requirements()
    made, real = without(one, tmp_path)
    made.chmod(real.stat().st_mode & 0o777)
    view = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-ec",
        'mount --bind "$1" "$2"; shift 2; exec "$@"',
    ]
    done = run([*view, "sh", str(made), str(real)], one.test)
    assert done.returncode == 1, done.stdout[-3000:] + done.stderr[-1000:]

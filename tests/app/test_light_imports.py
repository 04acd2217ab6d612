"""What dataclasses are made of is compiled once, whatever became of the file in which it is kept."""

import importlib.util
import marshal
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
COUNT = (
    "import sys; texts = []\n"
    "made = lambda what, it: what == 'compile' and '__create_fn__' in str(it[0])\n"
    "sys.addaudithook(lambda what, it: made(what, it) and texts.append(it))\n"
)
MADE = (
    "from light_imports import LightImports\n"
    "(imports := LightImports('test')).begin()\n"
    "from dataclasses import dataclass, replace\n"
    "@dataclass(frozen=True, slots=True, order=True)\n"
    "class Seen:\n"
    "    number: int\n"
    "    name: str = 'a'\n"
    "imports.end()\n"
    "print(Seen(1), Seen(1) < Seen(2), hash(Seen(3)) == hash(Seen(3, 'a')), replace(Seen(4), name='b'))\n"
    "print(len(texts))\n"
)
SAID = "Seen(number=1, name='a') True True Seen(number=4, name='b')"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(SOURCE / "pliant" / "light_imports.py", tmp_path)
    return tmp_path


def compiled(folder: Path, program: str = MADE, **variables: str) -> int:
    """How many texts it compiled. The class is the same in any case."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", COUNT + program],
        env={**env, "PYTHONPATH": str(folder), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *said, count = done.stdout.splitlines()
    assert said == [SAID] or program != MADE
    return int(count)


def kept(folder: Path) -> Path:
    (file,) = (folder / "__pycache__").glob("*.test")
    return file


def test_the_second_process_compiles_nothing(folder: Path) -> None:
    assert compiled(folder) > 5
    assert compiled(folder) == 0


@pytest.mark.parametrize("what", ["nothing", "half", "another kind", "another Python"])
def test_a_file_that_is_not_whole_or_not_ours_is_written_again(folder: Path, what: str) -> None:
    many = compiled(folder)
    whole = kept(folder).read_bytes()
    codes = marshal.loads(whole)[1]
    wrong = {
        "nothing": b"",
        "half": whole[: len(whole) // 2],
        "another kind": marshal.dumps(7),
        "another Python": marshal.dumps((b"1234", {text: codes[max(codes)] for text in codes})),
    }
    kept(folder).write_bytes(wrong[what])
    assert compiled(folder) == many
    assert marshal.loads(kept(folder).read_bytes())[0] == importlib.util.MAGIC_NUMBER
    assert compiled(folder) == 0


def test_who_may_read_the_module_may_read_the_file(folder: Path) -> None:
    (folder / "light_imports.py").chmod(0o644)
    compiled(folder, f"import os; os.umask(0o077)\n{MADE}")
    assert kept(folder).stat().st_mode & 0o777 == 0o644


def test_what_is_no_longer_used_is_dropped(folder: Path) -> None:
    compiled(folder, MADE.replace("number", "former"))
    compiled(folder)
    assert not any("former" in text for text in marshal.loads(kept(folder).read_bytes())[1])


def test_who_may_write_no_bytecode_writes_none(folder: Path) -> None:
    assert compiled(folder, PYTHONDONTWRITEBYTECODE="1") > 5
    assert not (folder / "__pycache__").exists()


def test_without_a_place_it_is_compiled_every_time(folder: Path) -> None:
    (folder / "__pycache__").write_text("in the way")
    assert compiled(folder) > 5
    assert [path.name for path in folder.iterdir() if path.name != "__pycache__"] == ["light_imports.py"]


@pytest.mark.parametrize("program", ["app", "control.decider.process"])
def test_programs_compile_few_texts(program: str) -> None:
    """The first may be the one that keeps them."""
    ask = f"import pliant.{program}; print(len(texts))"
    counts = [compiled(SOURCE, ask), compiled(SOURCE, ask)]
    assert counts[1] == 0, counts

"""Methods of dataclasses that their first call compiles do what they did, and are then what they were."""

import ast
import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pliant.late_methods import late

SRC = Path(__file__).parents[2] / "src" / "pliant"

MAKES = """
import dataclasses, sys
compiled = 0
real = dataclasses._create_fn
def create(*args, **rest):
    global compiled
    compiled += 1
    return real(*args, **rest)
dataclasses._create_fn = create
if sys.argv[1] == "late":
    import pliant.late_methods

@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Pair:
    "A docstring, so that none is made."
    a: int
    b: str = ""

print(compiled)
one, same, more = Pair(1, "x"), Pair(1, "x"), Pair(2)
print(one == same, one != more, one == 1, one < more, more >= one, hash(one) == hash((1, "x")), repr(one))
for change in (lambda: setattr(one, "a", 2), lambda: delattr(one, "b")):
    try:
        change()
    except dataclasses.FrozenInstanceError as error:
        print(error)
print(compiled, len({id(vars(Pair)[name]) for name in ("__eq__", "__hash__", "__repr__", "__setattr__")}))
before = compiled
one == more, {one, more}, repr(more)
print(compiled == before, Pair.__eq__.__code__.co_filename, Pair.__eq__.__qualname__)
"""


def _made(how: str) -> list[str]:
    path = os.pathsep.join([str(SRC.parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", MAKES, how],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    return done.stdout.splitlines()


def test_what_nobody_calls_is_not_compiled_and_what_is_called_is_as_it_was() -> None:
    if sys.version_info >= (3, 13):
        assert not hasattr(dataclasses, "_create_fn"), "it compiles once for each class, and is left as it is"
        return
    late, plain = _made("late"), _made("plain")
    assert (int(late[0]), int(plain[0])) == (1, 10), "at once: `__init__` alone"
    assert late[1:4] == plain[1:4]
    assert late[-1] == plain[-1] == "True <string> Pair.__eq__", "its own compiled method stands in the class"


def test_a_method_that_a_subclass_inherits_takes_its_place_where_it_stands() -> None:
    calls: list[Callable[..., Any]] = []

    def compiled() -> Callable[..., Any]:
        def real(self: object) -> str:
            return "said"

        calls.append(real)
        return real

    class Base:
        __repr__ = late(compiled, "__repr__")

    class Derived(Base):
        pass

    first = Base.__repr__
    assert [repr(Derived()), repr(Base()), first(Derived())] == ["said"] * 3
    assert len(calls) == 1 and vars(Base)["__repr__"] is calls[0] and "__repr__" not in vars(Derived)


def test_this_process_makes_dataclasses_as_a_server_does() -> None:
    @dataclass(frozen=True, slots=True)
    class Point:
        x: int
        seen: int = field(default=0, compare=False)

    assert Point(1) == Point(1, 5) and hash(Point(1)) == hash(Point(1, 5)) and Point(1) != Point(2)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        Point(1).x = 2  # type: ignore[misc]
    assert dataclasses.asdict(Point(1)) == {"x": 1, "seen": 0}


@pytest.mark.parametrize("file", ["app.py", "control/decider/process.py", "sim/__main__.py"])
def test_a_program_imports_it_before_the_rest_of_ours(file: str) -> None:
    body = ast.parse((SRC / file).read_text("utf-8")).body
    ours = [
        alias.name
        for node in body
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name.startswith("pliant")
    ]
    first = next(
        node
        for node in body
        if isinstance(node, ast.Import | ast.ImportFrom) and "pliant" in ast.unparse(node)
    )
    assert ours[0] == "pliant.late_methods" and ast.unparse(first) == "import pliant.late_methods"

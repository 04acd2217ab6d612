"""Every stored class is decoded as it was encoded; invalid values are refused in both directions."""

import json
from dataclasses import dataclass, make_dataclass
from enum import Enum, StrEnum
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.model.workload import AttemptId, Workload
from pliant.store.codec import FORMAT, Codec, CodecError
from pliant.store.kinds import EVENT, KINDS, Kind
from tests.store.samples import attempt, workload

EVERY = [*KINDS.values(), EVENT]


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Level(Enum):
    LOW = 1
    HIGH = 2


class Pair(NamedTuple):
    left: int
    right: str = "r"


ONE = Pair(1)


@dataclass(frozen=True, slots=True)
class Leaf:
    size: int
    colour: Colour = Colour.RED


@dataclass(frozen=True, slots=True)
class Tree:
    name: str
    leaves: tuple[Leaf, ...] = ()
    best: Leaf | None = None
    named: tuple[tuple[str, Leaf], ...] = ()
    mixed: tuple[int | str, ...] = ()
    maybe: int | None = None
    flag: bool = False
    level: Level = Level.LOW
    pair: Pair = ONE


TREE = Codec(Tree)
FULL = Tree(
    "t",
    (Leaf(1), Leaf(2, Colour.BLUE)),
    Leaf(3),
    (("a", Leaf(4)),),
    (1, "1"),
    5,
    True,
    Level.HIGH,
    Pair(6, "x"),
)


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.codec.kind.__name__)
def test_every_row_comes_back_equal(kind: Kind[Any]) -> None:
    @settings(max_examples=40)
    @given(st.from_type(kind.codec.kind))
    def check(value: Any) -> None:
        text = kind.codec.encode(value)
        assert text.isascii()
        back = kind.codec.decode(text)
        assert back == value
        assert repr(back) == repr(
            value
        )  # == alone does not notice 1 for True, or a list in place of a NamedTuple

    check()


@given(st.from_type(Tree))
def test_every_shape_of_field_comes_back_equal(value: Tree) -> None:
    back = TREE.decode(TREE.encode(value))
    assert back == value
    assert repr(back) == repr(value)


def test_the_text_is_plain() -> None:
    assert json.loads(TREE.encode(FULL)) == {
        "name": "t",
        "leaves": [{"size": 1, "colour": "red"}, {"size": 2, "colour": "blue"}],
        "best": {"size": 3, "colour": "red"},
        "named": [["a", {"size": 4, "colour": "red"}]],
        "mixed": [1, "1"],
        "maybe": 5,
        "flag": True,
        "level": 2,
        "pair": [6, "x"],
    }


def test_fields_that_came_later_take_their_defaults() -> None:
    old = '{"name":"t","leaves":[{"size":1}],"pair":[7]}'
    assert TREE.decode(old) == Tree("t", (Leaf(1),), pair=Pair(7))


def test_fields_that_went_are_left_out() -> None:
    assert TREE.decode('{"name":"t","gone":1,"leaves":[{"size":1,"weight":2}]}') == Tree("t", (Leaf(1),))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"name":"t","shape":1}', "Tree: unknown field shape"),
        ('{"name":"t","best":{"size":1,"weight":2}}', "Tree.best: unknown field weight"),
        ('{"name":"t","pair":[1,"r",3]}', r"Tree.pair: array of 2 expected, found \[1, 'r', 3\]"),
    ],
)
def test_unknown_fields_of_a_newer_format_are_refused(text: str, said: str) -> None:
    with pytest.raises(CodecError, match=rf"^{said} \(format {FORMAT + 1} of a newer Pliant"):
        TREE.decode(text, FORMAT + 1)
    assert TREE.decode(text, FORMAT).name == "t"
    assert TREE.decode('{"name":"t"}', FORMAT + 1) == Tree("t")  # missing fields lose nothing


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "Tree: not JSON"),
        ("[]", r"Tree: object expected, found \[\]"),
        ("{}", "Tree.name: missing"),
        ('{"name":1}', "Tree.name: str expected, found 1"),
        ('{"name":"t","maybe":1.0}', "Tree.maybe: int or null expected, found 1.0"),
        ('{"name":"t","maybe":true}', "Tree.maybe: int or null expected, found True"),
        ('{"name":"t","flag":1}', "Tree.flag: bool expected, found 1"),
        ('{"name":"t","leaves":{}}', "Tree.leaves: array expected"),
        (
            '{"name":"t","leaves":[{"size":1},{"size":"2"}]}',
            r"Tree.leaves\[1\].size: int expected, found '2'",
        ),
        ('{"name":"t","best":{"size":1,"colour":"pink"}}', "Tree.best.colour: one of red, blue expected"),
        ('{"name":"t","level":"1"}', "Tree.level: one of 1, 2 expected"),
        ('{"name":"t","level":true}', "Tree.level: one of 1, 2 expected"),
        ('{"name":"t","named":[["a"]]}', r"Tree.named\[0\]: array of 2 expected"),
        ('{"name":"t","named":[["a",{}]]}', r"Tree.named\[0\]\[1\].size: missing"),
        ('{"name":"t","pair":[]}', "Tree.pair: array of 2 expected"),
        ('{"name":"t","pair":["1"]}', "Tree.pair.left: int expected"),
    ],
)
def test_what_does_not_fit_is_not_read(text: str, said: str) -> None:
    with pytest.raises(CodecError, match=f"^{said}"):
        TREE.decode(text)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (Tree(1), "Tree.name: str expected, found 1"),
        (Tree("t", [Leaf(1)]), "Tree.leaves: tuple expected"),
        (Tree("t", (Leaf(True),)), r"Tree.leaves\[0\].size: int expected, found True"),
        (Tree("t", (Leaf(1.0),)), r"Tree.leaves\[0\].size: int expected, found 1.0"),
        (Tree("t", best=Pair(1)), "Tree.best: Leaf expected"),
        (Tree("t", best=Leaf(1, "red")), "Tree.best.colour: Colour expected"),
        (Tree("t", flag=0), "Tree.flag: bool expected"),
        (Tree("t", pair=(1, "r")), "Tree.pair: Pair expected"),
        (Leaf(1), "Tree: Tree expected, found Leaf"),
    ],
)
def test_what_could_not_be_read_is_not_written(value: Any, said: str) -> None:
    with pytest.raises(CodecError, match=f"^{said}"):
        TREE.encode(value)


def test_subclasses_of_plain_values_are_written_plain() -> None:
    assert TREE.decode(TREE.encode(Tree(Colour.RED))) == Tree("red")


@pytest.mark.parametrize("hint", [float, dict[str, int], list[int], Leaf | Tree, object])
def test_a_type_that_cannot_be_stored_is_found_at_once(hint: Any) -> None:
    with pytest.raises(TypeError, match="cannot be stored"):
        Codec(make_dataclass("Made", [("field", hint)]))


@pytest.mark.parametrize("text", ["\0", "\ud800", "\U0001f600", '"\\\r\n\u2028', "x" * 100_000])
def test_any_text_comes_back(text: str) -> None:
    codec = Codec(Workload)
    assert codec.decode(codec.encode(workload(1, user=text))).user == text


def test_identities_stay_named_tuples() -> None:
    codec = Codec(type(attempt(1)))
    assert type(codec.decode(codec.encode(attempt(1))).id) is AttemptId

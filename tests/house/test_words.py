"""How we write to people: plain engineering English, and no code that reads it."""

import ast
import io
import itertools
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "pliant"

PARSED = {"SERVICE URL(S)", "Open access point(s) to service from "}
"""Texts of Run:ai that scripts parse: they stay as they are."""

BANNED = re.compile(
    r"\d\.\d0 GPUs"  # two decimals are for columns
    r"|\.2f\}? GPU|format_gpus\(.*\)\} GPU"
    r"|\b(nobody|whoever|anew|lies|stands|shall|whom it|of late)\b"
    r"|\bso (long|many|much)\b"
    r"|\b(if not said|unless said|is not said|else one is)\b|\bFor people\b|^Everything about\b"
    r"|\(s\)|\bNothing is supposed\b|\bis no name for\b|\bthat cannot be\b"
    r"|\b(is|are) told\b|\bgo(es)? on\b(?! (the|a|node|the command))|\bcannot be had\b|\bsomebody else\b"
    r"|\bis no (number|mail|time|day|level|rule|portion|weight|port|program)\b|\bwhich there are\b"
    r"|(?-i:\bName (one of -|--))|\bask for less\b|\bdo not notice\b",
    re.IGNORECASE,
)

PLAIN = re.compile(r"\b(stands (by|for|out)|that cannot be \w+|and whom it)\b|<for people>")
"""Phrases of pages that contain a banned word and are plain English."""

ONCE = (
    "the best has", "the only node that it can use", "can ever hold it", "Nothing is supposed",
    "does not take work any more", "is inside its quota", ", on idle GPUs: ", "cannot take that much",
    "is being given back", "has a place and starts together", "is tried again after a pause",
    "It is set aside",
    "has not yet run for the minimum", "instead of 40", "it starts with fewer GPUs and grows",
    "there is a node more in", "get free on node", "It is not known how long",
    "Never on this cluster as it is",
    "Nothing waits.", "Nothing was submitted:", "stopped as told", "nobody saw it end.", "carry no times",
    "There is no command `", "name that with -p", "that cannot be.", "A GPU quota of", "Name what to",
    "Keep its rest", "It runs no longer", "Wait so long", "Of these at most", "Delete it so long",
    "For people at work", "Likewise gone", "All nodes of that label", "Who is served first",
    "Nothing is stopped for others", "Why is a workload where", "What was, over", "shrunk and stretched",
    "how a job stands", "has no record left for",
)  # fmt: skip
"""Former wordings; the texts now name the amount, the object and the command to type."""

READERS = {
    "startswith",
    "endswith",
    "removeprefix",
    "removesuffix",
    "partition",
    "rpartition",
    "find",
    "split",
}
SENTENCES = re.compile(
    r"""(\.message|\.text|\[["'](message|detail|text)["']\]|get\(["'](message|detail|text)["'].*\))$"""
)


Lines = tuple[tuple[int, str], ...]
"""Texts with the numbers of their lines."""


@dataclass(frozen=True, slots=True)
class Module:
    """The parts of a module that the tests check."""

    strings: Lines
    remarks: Lines
    spelled: Lines
    reading: Lines


@cache
def module(path: Path) -> Module:
    """Parses and walks a module once for all tests, which is most of their cost."""
    text = path.read_text("utf-8")
    nodes = list(ast.walk(ast.parse(text)))
    reading = tuple((getattr(node, "lineno", 0), ast.unparse(node)) for node in nodes if reads(node))
    return Module(tuple(strings(nodes)), tuple(remarks(nodes, text)), tuple(spelled(nodes)), reading)


def modules() -> Iterator[tuple[Path, Module]]:
    for path in sorted(SRC.rglob("*.py")):
        yield path.relative_to(SRC), module(path)


def strings(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Strings of a module with their lines: docstrings are for engineers, but those of commands are help."""
    helps = {
        id(node.body[0])
        for node in nodes
        if isinstance(node, ast.FunctionDef) and "command" in "".join(map(ast.unparse, node.decorator_list))
    }
    internal = {id(node.value) for node in nodes if isinstance(node, ast.Expr) and id(node) not in helps}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in internal:
            yield node.lineno, node.value


def test_texts_follow_the_style() -> None:
    wrong = [
        f"{path}:{line}: {hit[0]!r} in {text!r}"
        for path, found in modules()
        for line, text in found.strings
        if text not in PARSED and (hit := BANNED.search(text))
    ]
    assert wrong == []


INSIDE = re.compile(r"\b(whoever|anew|of late|shall)\b", re.IGNORECASE)
"""Words banned in docstrings and comments, which engineers read."""


def remarks(nodes: Iterable[ast.AST], text: str) -> Iterator[tuple[int, str]]:
    """Docstrings and comments of a module with their lines."""
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.lineno, str(node.value.value)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def test_docstrings_and_comments_follow_the_style() -> None:
    wrong = [
        f"{path}:{line}: {hit[0]!r}"
        for path, found in modules()
        for line, text in found.remarks
        if (hit := INSIDE.search(text))
    ]
    assert wrong == []


def test_a_remark_is_found(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text('"""Whoever asks."""\nx = 1  # made anew\n')
    assert [INSIDE.search(text) is not None for _, text in module(path).remarks] == [True, True]


def spelled(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Amounts with two decimals that a sentence calls GPUs: the finished text would say `2.00 GPUs`."""
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            for amount, after in itertools.pairwise(node.values):
                if isinstance(amount, ast.FormattedValue) and isinstance(after, ast.Constant):
                    text = ast.unparse(amount.value)
                    if text.startswith(("format_gpus(", "show_gpus(")) and str(after.value).startswith(
                        " GPU"
                    ):
                        yield node.lineno, text


def test_amounts_in_sentences_are_spelled() -> None:
    """`format_gpus` is for columns."""
    assert [(path.name, *line) for path, found in modules() for line in found.spelled] == []


def test_a_column_amount_in_a_sentence_is_found(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("x = f'a limit of {format_gpus(value)} GPUs'\n")
    assert len(module(path).spelled) == 1


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Lines of a page that are not typed or printed."""
    typed = False
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if line.startswith("```"):
            typed = not typed
        elif not typed:
            yield number, re.sub("`[^`]*`", "``", line)


def test_pages_follow_the_style() -> None:
    """Decision records are left as they were written."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {hit[0]!r} in {line!r}"
        for path in pages
        if "adr" not in path.parts
        for number, line in prose(path)
        if (hit := BANNED.search(PLAIN.sub("", line)))
    ]
    assert wrong == []


def test_no_text_says_again_what_was_replaced() -> None:
    said = [
        *(text for _, found in modules() for _, text in found.strings),
        (ROOT / "tests" / "wording" / "sentences.txt").read_text("utf-8"),
        (ROOT / "README.md").read_text("utf-8"),
    ]
    assert [(old, text) for text in said for old in ONCE if old in text] == []


def test_all_sentences_about_decisions_follow_the_style() -> None:
    """Numbers are inserted when a sentence is made, so the finished sentences are checked too."""
    sentences = Path(__file__).resolve().parents[1] / "wording" / "sentences.txt"
    assert [line for line in sentences.read_text("utf-8").splitlines() if BANNED.search(line)] == []


@pytest.mark.parametrize(
    ("bad", "good"),
    [
        ("It waits for 2.00 GPUs", "Needs 2 GPUs"),
        ("Nobody has it", "It is idle"),
        ("submit it anew", "submit it again"),
        ("for so long", "for 5m"),
        ("2 task(s)", "2 tasks"),
        ("Workers; 1 if not said.", "Workers (default: 1)."),
        ("Everything about a job.", "Show a job in detail."),
        ("Tasks go on running.", "Tasks keep running."),
        ("No address is told anything.", "No notifications."),
        ("70000 is no port.", "Invalid port 70000."),
        ("Name --user or --everybody.", "Specify --user or --everybody."),
    ],
)
def test_what_is_banned(bad: str, good: str) -> None:
    assert BANNED.search(bad) and not BANNED.search(good)


def reads(node: ast.AST) -> bool:
    """True for code that parses a sentence: it inspects a message, or searches for several words."""
    match node:
        case ast.Call(func=ast.Attribute(value=looked, attr=name), args=args) if name in READERS:
            words = [it.value for it in args if isinstance(it, ast.Constant) and isinstance(it.value, str)]
            return bool(SENTENCES.search(ast.unparse(looked))) or any(" " in it.strip() for it in words)
        case ast.Compare(
            left=left, ops=[ast.In() | ast.NotIn() | ast.Eq() | ast.NotEq()], comparators=[right]
        ):
            return any(SENTENCES.search(ast.unparse(side)) for side in (left, right))
    return False


def test_no_code_reads_sentences() -> None:
    """Sentences are for people; code compares codes, keys and numbers."""
    wrong = [f"{path}:{line}: {code}" for path, found in modules() for line, code in found.reading]
    assert wrong == []


@pytest.mark.parametrize(
    "code",
    [
        'str(message).startswith("It waits for ")',
        'error.message.startswith("Port ")',
        '"busy" in item["message"]',
        "remedy.text != other.text",
    ],
)
def test_what_counts_as_reading(code: str) -> None:
    assert any(reads(node) for node in ast.walk(ast.parse(code)))

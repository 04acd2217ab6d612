"""How we write to people: plain engineering English, and no code that reads it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "src" / "pliant"

PARSED = {"SERVICE URL(S)", "Open access point(s) to service from "}
"""Texts of Run:ai that scripts read: they stay as they are."""

BANNED = re.compile(
    r"\d\.\d0 GPUs"  # two decimals are for columns
    r"|\.2f\}? GPU|format_gpus\(.*\)\} GPU"
    r"|\b(nobody|whoever|anew|lies|stands|shall|whom it|of late)\b"
    r"|\bso (long|many|much)\b"
    r"|\b(if not said|unless said|is not said|else one is)\b|\bFor people\b|^Everything about\b"
    r"|\(s\)|\bNothing is supposed\b|\bis no name for\b|\bthat cannot be\b",
    re.IGNORECASE,
)

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


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """Strings of a module with their lines: docstrings are for engineers, but those of commands are help."""
    tree = ast.parse(path.read_text("utf-8"))
    helps = {
        id(node.body[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and "command" in "".join(map(ast.unparse, node.decorator_list))
    }
    internal = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and id(node) not in helps
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in internal:
            yield node.lineno, node.value


def test_texts_follow_the_style() -> None:
    wrong = [
        f"{path.relative_to(SRC)}:{line}: {hit[0]!r} in {text!r}"
        for path in sorted(SRC.rglob("*.py"))
        for line, text in strings(path)
        if text not in PARSED and (hit := BANNED.search(text))
    ]
    assert wrong == []


def test_all_sentences_about_decisions_follow_the_style() -> None:
    """Numbers are put in only when a sentence is made, so the finished ones are looked at as well."""
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
    ],
)
def test_what_is_banned(bad: str, good: str) -> None:
    assert BANNED.search(bad) and not BANNED.search(good)


def reads(node: ast.AST) -> bool:
    """True for code that looks into a sentence: it asks one for its words, or has words to look for."""
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
    """What is said is for people: code compares codes, keys and numbers."""
    wrong = [
        f"{path.relative_to(SRC)}:{getattr(node, 'lineno', 0)}: {ast.unparse(node)}"
        for path in sorted(SRC.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if reads(node)
    ]
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

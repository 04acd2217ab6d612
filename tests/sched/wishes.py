"""Parses the words of a world that say which nodes a job needs, prefers and tolerates.

on      labels of its nodes: `on=zone:a,b`, `!zone:a`, `zone`, `!zone`, `size>4`, `size<4`; joined by `&`,
        alternatives by `|`
likes   the same, preferred: `likes=10*zone:a;5*rack:b`
stands  tolerations: `stands=key.value/Effect`, `key/Effect` (any value), `key` (every effect), `~30` at the
        end (for 30 s); joined by `,`
"""

from __future__ import annotations

from pliant.model.affinity import Affinity, Effect, Operator, Preference, Taint, Term, Toleration


def taint(text: str, since: int) -> Taint:
    """`key.value/Effect`."""
    name, _, effect = text.partition("/")
    key, _, value = name.partition(".")
    return Taint(key, value, Effect(effect), since=since)


def toleration(text: str) -> Toleration:
    """The same as a taint, or `key/Effect` for any value of it; `~30` at the end: for 30 s."""
    text, _, lasting = text.partition("~")
    name, _, effect = text.partition("/")
    key, dot, value = name.partition(".")
    stays = int(lasting) * 1000 if lasting else None
    return Toleration(key, value, not dot, Effect(effect) if effect else None, stays)


def term(text: str) -> Term:
    for sign, operator in ((">", Operator.GT), ("<", Operator.LT)):
        key, found, value = text.partition(sign)
        if found:
            return Term(key, operator, (value,))
    negated, key = text.startswith("!"), text.removeprefix("!")
    key, colon, values = key.partition(":")
    if not colon:
        return Term(key, Operator.DOES_NOT_EXIST if negated else Operator.EXISTS)
    return Term(key, Operator.NOT_IN if negated else Operator.IN, tuple(values.split(",")))


def affinity(said: dict[str, str]) -> Affinity | None:
    """The affinity that `on` and `likes` describe."""
    required = tuple(
        tuple(term(text) for text in terms.split("&")) for terms in said.get("on", "").split("|") if terms
    )
    preferred = []
    for text in said.get("likes", "").split(";"):
        weight, star, terms = text.partition("*")
        if star:
            preferred.append(Preference(int(weight), tuple(term(one) for one in terms.split("&"))))
    return Affinity(required, tuple(preferred)) if required or preferred else None


def tolerations(said: dict[str, str]) -> tuple[Toleration, ...]:
    return tuple(toleration(text) for text in said.get("stands", "").split(",") if text)


def said_in(words: list[str]) -> dict[str, str]:
    """The words with a value."""
    return dict(word.partition("=")[::2] for word in words if "=" in word)

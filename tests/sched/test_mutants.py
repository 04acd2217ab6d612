"""Bugs that are put into the core on purpose: each must be caught, and without it nothing may be found.

A mutant changes the text of some functions; a text that is no longer there fails the test by name. What
catches it is the referee on small worlds and the outcome that a table would ask for.
"""

import ast
import importlib
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from types import FunctionType

import pytest

from tests.sched.ticker import settled


@dataclass(frozen=True)
class World:
    """A small world and the GPUs that everything that runs in it has in the end."""

    nodes: str
    projects: str
    jobs: tuple[str, ...]
    running: dict[str, float]
    pools: str = ""

    def check(self) -> None:
        t = settled(self.nodes, self.projects, *self.jobs, pools=self.pools)
        assert t.running() == self.running


@dataclass(frozen=True)
class Mutant:
    name: str
    edits: tuple[
        tuple[str, str, str], ...
    ]  # function as module:qualified.name, text, what comes in its place
    caught_by: Callable[[], None]


MUTANTS = (
    Mutant(
        "ignores limits",
        (
            (
                "admission:refuse",
                "if request[at] and use.claimed[at] + request[at] > mine.limit[at]:",
                "if False:",
            ),
            ("admission:exceeded", "if asked_ and used > most:", "if False:"),
        ),
        World("n1:3", "a=1:max=2", ("x a g1", "y a g1", "z a g1"), {"x": 1, "y": 1}).check,
    ),
    Mutant(
        "protects nobody's minimum run time",
        (("victims:Rules.unprotected", "return not self.patient", "return True"),),
        World(
            "n1:1", "a=1", ("low a g1 p25 @n1 ran=10", "high a g1 p80"), {"low": 1}, "default:min=60"
        ).check,
    ),
    Mutant(
        "counts what is being given back as free",
        (
            ("intents:Deriver._free_now", "portion + share.portion > GPU or", "False and"),
        ),
        World("n1:1", "a=1", ("x a g1 ~n1", "y a g1 p80"), {"y": 1}).check,
    ),
    Mutant(
        "two victims for one GPU",
        (
            (
                "hunt:Hunt.run",
                "tell(self._rules,",
                "self._take(unit_for(self._rules, ('y', 'main-0'), 'n1.1')); tell(self._rules,",
            ),
            ("moving:resettle", "if not rules.resettles:", "if rules:"),
            ("context:Cycle.room_freed", "self.released = True", "self.released = False"),
        ),
        World(
            "n1:3", "a=3", ("x a g1 p25 @n1", "y a g1 p25 @n1", "z a g1 p25 @n1", "high a g1 p80"),
            {"x": 1, "y": 1, "high": 1},
        ).check,
    ),
    Mutant(
        "takes from those below their quota",
        (
            (
                "actions.reclaim:BelowDue._may_give",
                "if not fair and not (self._below_quota(mine) and self._exceeds(have, standing.deserved)):",
                "if False:",
            ),
        ),
        World(
            "n1:2 n2:1 n3:1", "a=2 b=2 c=0", ("a1 a g2 @n1", "c1 c g1 @n2", "c2 c g1 @n3", "b1 b g2"),
            {"a1": 2, "c1": 1, "c2": 1},
        ).check,
    ),
    Mutant(
        "a gang may start in part",
        (("intents:Deriver._core_up", "return core_met(workload, up)", "return True"),),
        World("n1:1 n2:1", "a=2", ("pair a g1 x2", "w a g1 ~n2"), {"pair": 2}).check,
    ),
    Mutant(
        "a device beyond its memory",
        (
            ("device:Device.room", "and self.claimed_memory + memory <= self.gpu.memory", ""),
            ("device:Device.room", "and self.claimed + portion <= GPU", ""),
        ),
        World("n1:1:mem=16", "a=2", ("x a m10Gi @n1", "y a m10Gi"), {"x": 0.625}).check,
    ),
    Mutant(
        "bonus evicts",
        (
            (
                "portions:_portion",
                "if not claims or len(claims[0].shares) >= group.request.devices:",
                "if not claims or len(claims[0].shares) >= 4:",
            ),
            (
                "portions:_portion",
                "step_up(workload, len(claims[0].shares), group.request.devices)",
                "step_up(workload, len(claims[0].shares), 4)",
            ),
        ),
        World("n1:2", "a=2", ("low a g1 p25 @n1", "e a g1 elastic p80 @n1*1"), {"low": 1, "e": 1}).check,
    ),
    Mutant(
        "the order of siblings reversed",
        (("queue:queue_key", "standing.created,", "-standing.created,"),),
        World("n1:1", "a=1 b=1", ("b1 b g1", "a1 a g1"), {"a1": 1}).check,
    ),
    Mutant(
        "undo forgets a claim",
        (("claims:Claims.undo", "self._set(key, before)", "self._set(key, before) if mark else None"),),
        World("n1:1", "a=1", ("x a g1",), {"x": 1}).check,
    ),
    Mutant(
        "stops what is non-preemptible",
        (("actions.reclaim:BelowDue.may", "if not victim.preemptible or", "if"),),
        World(
            "n1:2", "a=1 b=1", ("b1 b g1 @n1", "b2 b g1 np @n1", "a1 a g1"), {"b2": 1, "a1": 1}
        ).check,
    ),
    Mutant(
        "high priority takes from other projects",
        (("actions.preempt:LowerPriority.may", "and victim.project == winner.project", ""),),
        World(
            "n1:1 n2:2", "a=3 b=2", ("a1 a g1 p25 @n1", "b1 b g2 p25 @n2", "a2 a g2 p90"), {"a1": 1, "b1": 2}
        ).check,
    ),
)  # fmt: skip


def _function(path: str) -> FunctionType:
    module, _, name = path.partition(":")
    found = reduce(getattr, name.split("."), importlib.import_module(f"pliant.sched.{module}"))
    return inspect.unwrap(found)


def mutate(monkeypatch: pytest.MonkeyPatch, mutant: Mutant) -> None:
    """Give the functions the code of their changed text; every importer sees it."""
    texts: dict[str, str] = {}
    for path, old, new in mutant.edits:
        text = texts.get(path) or textwrap.dedent(inspect.getsource(_function(path)))
        assert old in text, f"{mutant.name}: {path} no longer says {old!r}; change the mutant"
        texts[path] = text.replace(old, new)
    for path, text in texts.items():
        function = _function(path)
        ast.parse(text)
        scope = dict(function.__globals__)
        exec(compile(text, f"<{mutant.name}>", "exec"), scope)
        monkeypatch.setattr(function, "__code__", scope[function.__name__].__code__)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_is_caught(mutant, monkeypatch):
    mutant.caught_by()
    mutate(monkeypatch, mutant)
    with pytest.raises(AssertionError):
        mutant.caught_by()


def test_a_text_that_is_gone_is_named(monkeypatch):
    gone = Mutant("of old", (("queue:dominant", "what nobody wrote", ""),), lambda: None)
    with pytest.raises(AssertionError, match="no longer says"):
        mutate(monkeypatch, gone)

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

from tests.sched import test_backoff, test_churn, test_past_use, test_pools
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
                "shares.admission:refuse",
                "if request[at] and use.claimed[at] + request[at] > mine.limit[at]:",
                "if False:",
            ),
            ("shares.admission:exceeded", "if asked_ and used > most:", "if False:"),
        ),
        World("n1:3", "a=1:max=2", ("x a g1", "y a g1", "z a g1"), {"x": 1, "y": 1}).check,
    ),
    Mutant(
        "protects nobody's minimum run time",
        (("preemption.victims:Rules.unprotected", "return not self.patient", "return True"),),
        World(
            "n1:1", "a=1", ("low a g1 p25 @n1 ran=10", "high a g1 p80"), {"low": 1}, "default:min=60"
        ).check,
    ),
    Mutant(
        "counts what is being given back as free",
        (
            ("actions.intents:Deriver._free_now", "portion + share.portion > GPU or", "False and"),
        ),
        World("n1:1", "a=1", ("x a g1 ~n1", "y a g1 p80"), {"y": 1}).check,
    ),
    Mutant(
        "two victims for one GPU",
        (
            (
                "preemption.search:Hunt.run",
                "tell(self._rules,",
                "self._take(unit_for(self._rules, ('y', 'main-0'), 'n1.1')); tell(self._rules,",
            ),
            ("preemption.moving:resettle", "if not rules.resettles:", "if rules:"),
            ("actions.context:Cycle.room_freed", "self.released = True", "self.released = False"),
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
        (("actions.intents:Deriver._core_up", "return core_met(workload, up)", "return True"),),
        World("n1:1 n2:1", "a=2", ("pair a g1 x2", "w a g1 ~n2"), {"pair": 2}).check,
    ),
    Mutant(
        "a device beyond its memory",
        (
            ("world.device:Device.room", "and self.claimed_memory + memory <= self.gpu.memory", ""),
            ("world.device:Device.room", "and self.claimed + portion <= GPU", ""),
            ("placement.score:_joinable", "bisect_left(look.rests, portion)", "0"),
        ),
        World("n1:1:mem=16", "a=2", ("x a m10Gi @n1", "y a m10Gi"), {"x": 0.625}).check,
    ),
    Mutant(
        "bonus evicts",
        (
            (
                "world.portions:_portion",
                "if not claims or len(claims[0].shares) >= group.request.devices:",
                "if not claims or len(claims[0].shares) >= 4:",
            ),
            (
                "world.portions:_portion",
                "step_up(workload, len(claims[0].shares), group.request.devices)",
                "step_up(workload, len(claims[0].shares), 4)",
            ),
        ),
        World("n1:2", "a=2", ("low a g1 p25 @n1", "e a g1 elastic p80 @n1*1"), {"low": 1, "e": 1}).check,
    ),
    Mutant(
        "the order of siblings reversed",
        (("shares.queue_order:queue_key", "standing.created,", "-standing.created,"),),
        World("n1:1", "a=1 b=1", ("b1 b g1", "a1 a g1"), {"a1": 1}).check,
    ),
    Mutant(
        "undo forgets a claim",
        (("world.claims:Claims.undo", "self._set(key, before)", "self._set(key, before) if mark else None"),),
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
    Mutant(
        "two devices of a fraction are one",
        (("placement.fraction:shared_devices", "found[: request.devices]]", "found[:1]]"),),
        World("n1:2", "a=2", ("x a g0.5x2",), {"x": 1}).check,
    ),
    Mutant(
        "who stands one effect of a taint stands all",
        (("world.node_affinity:tolerates", "toleration.effect is None or", "True or"),),
        World("n1:1:taint=k.v/NoSchedule", "a=1", ("x a g1 stands=k/NoExecute",), {}).check,
    ),
    Mutant(
        "the quota of one pool is that of all",
        (("shares.standings:deserved", "queue.quota(pool)", "queue.quota(DEFAULT_POOL)"),),
        World(
            "n1:1 n2:1:pool=fast", "a=1+fast=0", ("x a g1 np pool=fast", "y a g1 np"), {"y": 1}, "fast"
        ).check,
    ),
    Mutant(
        "of preferred domains the fullest is filled first",
        (("placement.topology:node_sets", "for one in reversed(near)", "for one in near"),),
        World(
            " ".join(f"n{i}:1:zone=z:rack=r{i // 2}" for i in range(6)), "a=9",
            ("x a g1 np @n0", "j a g1 x3 np near=rack", "y a g1 x2 within=rack p25"), {"x": 1, "j": 3},
        ).check,
    ),
    Mutant(
        "waiting lifts above what is never preempted",
        (
            (
                "shares.ageing:aged",
                "return most if priority >= PREEMPTIBLE_BELOW else",
                "return most if True else",
            ),
        ),
        lambda: test_past_use.test_who_waited_for_long_goes_first(
            "old a g1 p90 waits=36000", "new a g1 np p100", "new"
        ),
    ),
    Mutant(
        "a churn budget of each cycle",
        (
            (
                "preemption.churn:Churn.rows",
                "(*self._past(project), *[self._now] * count)",
                "(self._now,) * count",
            ),
        ),
        test_churn.test_what_was_before_counts_with_what_came_later,
    ),
    Mutant(
        "who pauses is asked all the same",
        (("actions.context:Cycle.rests", "row.retry_at is not None and row.retry_at > self.now", "False"),),
        lambda: test_backoff.test_it_blocks_nobody_and_holds_nothing(
            "n1:1", "a=1", "f a g1 p90", ["y a g1"], {"y"}
        ),
    ),
    Mutant(
        "who was taken moves to the pool that it prefers",
        (("placement.staying:stay", "if not given_back(world, mine.items()):", "if True:"),),
        lambda: test_pools.test_who_may_stay_in_the_end_is_not_moved_to_a_pool_that_it_prefers(
            "x1-2", "j Running 0.5 n2", 1
        ),
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
    gone = Mutant("of old", (("shares.queue_order:dominant", "what nobody wrote", ""),), lambda: None)
    with pytest.raises(AssertionError, match="no longer says"):
        mutate(monkeypatch, gone)

"""Membership as small worlds and as a state machine: the right workers meet, and none waits for ever."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pliant.train.master.membership import Generation, Membership, Times


class World:
    """Workers that follow verdicts, and a clock that the test advances."""

    def __init__(self, **times: int) -> None:
        self.formed: list[Generation] = []
        self.m = Membership(Times(**times), record=self.formed.append)
        self.now = 0

    def join(self, *names: str, step: int = -1) -> None:
        for name in names:
            self.m.register(name, "h", 1, step, 0, self.now)
            self.m.line(name, True, self.now)
            self.m.ready(name, "join", step, 0, self.now)
        self.tick()

    def ready(self, why: str, step: int, *names: str, leaving: bool = False) -> None:
        for name in names:
            self.m.ready(name, why, step, self.m.number, self.now, leaving)
        self.tick()

    def tick(self, ms: int = 0) -> None:
        self.now += ms
        for worker in self.m.workers.values():
            if worker.lines > 0:
                worker.seen = self.now
        self.m.tick(self.now)

    def verdicts(self) -> dict[str, Any]:
        found = {name: self.m.verdict(name) for name in list(self.m.workers)}
        return {name: verdict["what"] for name, verdict in found.items() if verdict}

    @property
    def last(self) -> Generation:
        return self.formed[-1]


def trained(*names: str, step: int = 10) -> World:
    """A world of these workers, which have applied `step`."""
    w = World()
    w.join(*names)
    w.verdicts()
    for name in names:
        w.m.applied(name, step)
    return w


def test_the_first_generation_waits_for_who_is_expected() -> None:
    w = World()
    w.m.expect(["a", "b"], 60_000, 0)
    w.join("a")
    assert w.formed == []
    w.join("b")
    assert w.last.members == ("a", "b") and w.last.restore and w.last.sync


def test_but_not_for_ever() -> None:
    w = World()
    w.m.expect(["a", "b"], 60_000, 0)
    w.join("a")
    w.tick(20_000)
    assert w.last.members == ("a",)


def test_a_loss_ends_the_generation_and_the_highest_step_is_the_truth() -> None:
    w = trained("a", "b", "c")
    w.m.gone("b")
    assert w.m.dead == 1
    w.ready("lost", 10, "a")
    assert len(w.formed) == 1, "c is awaited"
    w.ready("lost", 11, "c")  # it had the whole sum already
    assert w.last.members == ("a", "c") and w.last.step == 11 and w.last.source == 1 and w.last.sync


def test_nobody_is_behind_nothing_is_sent() -> None:
    w = trained("a", "b", "c")
    w.m.gone("b")
    w.ready("lost", 10, "a", "c")
    assert not w.last.sync and not w.last.restore


def test_announced_leave_happens_at_a_boundary() -> None:
    w = trained("a", "b")
    w.m.leave(["b"])
    w.tick(1)
    assert w.m.boundary and w.m.dead == 0
    w.ready("boundary", 11, "a", "b")
    assert w.verdicts() == {"a": "train", "b": "leave"} and w.last.members == ("a",) and not w.last.sync


def test_joins_that_are_expected_together_are_one_change() -> None:
    w = trained("a")
    w.m.expect(["b", "c"], 60_000, w.now)
    w.join("b")
    assert not w.m.boundary, "c is on its way"
    w.join("c")
    assert w.m.boundary
    w.ready("boundary", 11, "a")
    assert w.last.members == ("a", "b", "c") and w.last.source == 0 and w.last.sync


def test_a_newcomer_waits_for_others_only_so_long() -> None:
    w = trained("a")
    w.m.expect(["b", "c"], 60_000, w.now)
    w.join("b")
    w.tick(1_000)
    assert w.m.boundary


def test_who_is_asked_to_leave_before_it_has_come() -> None:
    w = trained("a")
    w.m.expect(["b"], 60_000, w.now)
    w.m.leave(["b"])
    w.join("b")
    assert w.verdicts() == {"b": "leave"} and not w.m.boundary and w.m.number == 1


def test_the_only_one_who_knows_stays_one_step_longer() -> None:
    w = trained("a")
    w.join("b")
    w.m.leave(["a"])
    w.tick()
    w.ready("boundary", 11, "a")
    assert w.last.members == ("a", "b") and w.last.sync and w.last.source == 0
    w.verdicts()
    w.tick(1)
    assert w.m.boundary, "and leaves right after"
    w.ready("boundary", 12, "a", "b")
    assert w.verdicts() == {"a": "leave", "b": "train"}


def test_the_last_who_leave_save_first() -> None:
    w = trained("a", "b")
    w.m.leave(["a", "b"])
    w.ready("boundary", 11, "a", "b")
    assert w.verdicts() == {"a": "save", "b": "leave"}
    w.m.saved("a")
    w.tick()
    assert w.verdicts() == {"a": "leave"}
    w.join("c")
    assert w.last.restore and w.last.members == ("c",)


def test_who_died_before_sending_its_state_has_left_none() -> None:
    w = World()
    w.join("a", "b", "c")
    w.verdicts()
    w.m.gone("a")  # rank 0, which had to restore and send
    w.ready("lost", -1, "b", "c")
    assert w.last.restore and w.last.sync


def test_the_end_survives_the_loss_of_who_saves() -> None:
    w = trained("a", "b", step=40)
    w.ready("done", 40, "a", "b")
    assert w.verdicts() == {"a": "save"}
    w.m.gone("a")
    w.tick()
    assert w.verdicts() == {"b": "save"}
    w.m.saved("b")
    assert w.verdicts() == {"b": "stop"}


def test_silence_and_broken_lines() -> None:
    w = trained("a", "b", "c")
    w.m.line("b", False, w.now)
    w.tick(1_500)
    assert w.m.workers["b"].state == "member", "it may come back"
    w.ready("lost", 10, "a")  # but now a member misses a peer
    w.tick(60)
    assert w.m.workers["b"].state == "lost"
    w.m.workers["c"].lines = 0
    w.tick(11_000)
    assert w.m.workers["c"].state == "lost"


def test_a_member_that_lives_and_never_comes_is_given_up() -> None:
    w = trained("a", "b")
    w.m.die()
    w.ready("lost", 10, "a")
    w.tick(1_800_000)
    assert w.last.number == 1, "it may be busy with something long"
    w.tick(1)
    w.tick()
    assert w.last.members == ("a",) and w.m.workers["b"].state == "lost"


def test_an_answer_that_was_lost_on_its_way() -> None:
    w = trained("a", "b")
    w.m.gone("x")
    w.m.leave(["b"])
    w.ready("boundary", 11, "a", "b")
    assert w.verdicts() == {"a": "train", "b": "leave"}
    w.m.ready("a", "boundary", 11, 1, w.now)  # a asks again as a member of generation 1
    w.tick()
    assert w.m.dead == 2 and w.last.number == 3 and w.verdicts() == {"a": "train"}


def test_a_stopped_worker_that_wakes_up_is_a_newcomer_whose_state_does_not_count() -> None:
    w = trained("a", "b")
    w.m.gone("b")
    w.ready("lost", 10, "a")
    w.verdicts()
    w.m.applied("a", 12)
    assert not w.m.known("b")
    w.join("b", step=99)
    w.ready("boundary", 12, "a")
    assert w.last.step == 12 and w.last.source == 0 and w.last.sync


class Storm(RuleBasedStateMachine):
    """Models weights as the list of generations that made each step."""

    @initialize()
    def begin(self) -> None:
        self.w = World()
        self.steps: dict[str, list[int]] = {}  # worker -> generation of each step it has applied
        self.in_generation: dict[str, int] = {}
        self.alive: set[str] = set()
        self.knows: set[str] = set()  # workers that have a state at all
        self.trouble = ""  # what happens at the next meeting
        self.count = 0

    @rule(what=st.sampled_from(["an answer is lost", "the source dies while it sends"]))
    def expect_trouble(self, what: str) -> None:
        self.trouble = what

    def applied(self, name: str) -> int:
        return len(self.steps[name]) if name in self.knows else -1

    @rule(n=st.integers(1, 3))
    def join(self, n: int) -> None:
        names = [f"w{self.count + i}" for i in range(n)]
        self.count += n
        self.alive |= set(names)
        for name in names:
            self.steps[name] = []
        self.w.join(*names)
        self.settle()

    def members(self) -> list[str]:
        last = self.w.m.generation
        return [n for n in last.members if n in self.alive] if last else []

    @precondition(lambda self: self.members())
    @rule(data=st.data(), some=st.booleans())
    def step(self, data: Any, some: bool) -> None:
        """A step of the current generation: all members apply it, or only some if a peer has died."""
        w = self.w
        members = self.members()
        if w.m.dead >= w.m.number or any(self.in_generation.get(n) != w.m.number for n in members):
            return
        if len(members) < len(w.last.members):
            return
        lucky = members
        if some and len(members) > 1:
            victim = data.draw(st.sampled_from(members))
            lucky = [n for n in members if n == victim or data.draw(st.booleans())]
            self.kill(victim)
        for name in lucky:
            self.steps[name] = [*self.steps[name], w.m.number]
            if name in self.alive:
                w.m.applied(name, len(self.steps[name]))
        if w.m.boundary or any(w.m.workers[n].leaving for n in members):
            self.meet("boundary")
        self.settle()

    def kill(self, name: str) -> None:
        self.alive.discard(name)
        self.w.m.gone(name)
        self.w.m.tick(self.w.now)

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def lose(self, data: Any) -> None:
        self.kill(data.draw(st.sampled_from(sorted(self.alive))))
        self.settle()

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def leave(self, data: Any) -> None:
        self.w.m.leave([data.draw(st.sampled_from(sorted(self.alive)))])
        self.w.tick(1)

    @rule(ms=st.integers(0, 5_000))
    def wait(self, ms: int) -> None:
        self.w.tick(ms)
        self.settle()

    def meet(self, why: str) -> None:
        for name in self.members():
            worker = self.w.m.workers[name]
            if worker.state == "member" and not worker.ready:
                self.w.m.ready(name, why, self.applied(name), self.in_generation.get(name, 0), self.w.now)
        truth = max((self.applied(name) for name in self.members()), default=-1)
        before = self.w.m.number
        self.w.tick()
        if truth >= 0 and self.w.m.number > before:
            assert self.w.last.step == truth and not self.w.last.restore, "what a member had applied was lost"

    def settle(self) -> None:
        """All workers follow their verdicts at once until there are none."""
        for _ in range(20):
            w = self.w
            if w.m.generation is not None and w.m.dead >= w.m.number:
                self.meet("lost")
            elif w.m.boundary:
                self.meet("boundary")
            answers = {n: v for n in sorted(self.alive) if (v := w.m.verdict(n)) is not None}
            if not answers:
                return
            last = w.last
            source = last.members[last.source]
            truth = [] if last.restore else self.steps[source]
            broken = self.trouble == "the source dies while it sends" and last.sync and len(last.members) > 1
            for name, verdict in answers.items():
                if verdict["what"] == "train":
                    if self.trouble == "an answer is lost":
                        self.trouble = ""
                        w.m.ready(name, "lost", self.applied(name), self.in_generation.get(name, 0), w.now)
                        continue
                    self.in_generation[name] = last.number
                    if not broken and last.sync:
                        self.steps[name] = list(truth)
                        self.knows.add(name)
                    assert broken or self.applied(name) == last.step
                elif verdict["what"] == "leave":
                    self.alive.discard(name)
                    w.m.gone(name)
                elif verdict["what"] == "save":
                    w.m.saved(name)
            if broken:
                self.trouble = ""
                self.kill(last.members[0] if last.restore else source)
            w.tick()

    @invariant()
    def members_of_a_generation_have_the_same_weights(self) -> None:
        if not hasattr(self, "w"):
            return
        w = self.w
        here = [n for n in self.members() if self.in_generation.get(n) == w.m.number]
        if w.m.dead < w.m.number and len(here) == len(w.last.members):
            assert len({tuple(self.steps[n]) for n in here}) <= 1

    @invariant()
    def nobody_waits_for_ever(self) -> None:
        """After some time without events all live workers are members of the newest generation."""
        if not hasattr(self, "w") or not self.alive:
            return
        self.trouble = ""
        for _ in range(3):
            self.w.tick(25_000)
            self.settle()
        if self.members():
            assert set(self.w.last.members) <= self.alive, "a member is gone and nobody was told"
        for name in sorted(self.alive):
            worker = self.w.m.workers[name]
            assert worker.state == "member" or worker.leaving, (name, worker)
            assert self.in_generation[name] == self.w.m.number or worker.leaving


Storm.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestStorm = Storm.TestCase

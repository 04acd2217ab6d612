"""What would let a workload start: changes with their numbers, each in words that say what to do."""

from dataclasses import dataclass, replace
from typing import Self

from pliant.model.quantity import listed, spell_duration, spell_gpus
from pliant.model.reason.base import MayRead, Named, amount, bare


@dataclass(frozen=True, slots=True)
class Cure:
    """One change; one `unit` less of it is not enough.

    kind        what `count` and `before` mean
    end         `whom` end: `count` milli-GPUs become free on `nodes`
    release     `whom`, which are being stopped, have ended
    quota       of the queues `whom` is raised by `count` from `before` (of the first): amounts of `resource`
    fair-share  likewise, where the fair share is what keeps it from starting: it grows with the quota
    limit       likewise
    priority    its own is `before` + `count`
    request     each task asks for `count` less of `resource` than `before`
    tasks       it starts with `count` tasks less than `before`
    elastic, preemptible   it is
    node-type, node-pool, node-affinity, topology   it no longer requires `where`
    uncordon    node `where` is schedulable again
    node-ready  node `where`, which does not answer, is back
    taint       node `where` no longer has `taints`
    machines    pool `where` has one more node, with `count` milli-GPUs and `needs`, which no node has today
    wait        `count` ms pass
    resume      its owner resumes it
    """

    kind: str
    count: int = 0
    unit: int = 1
    before: int = 0
    resource: str = "gpu"
    where: str = ""
    nodes: tuple[str, ...] = ()
    whom: tuple[Named, ...] = ()
    taints: tuple[str, ...] = ()
    needs: tuple[tuple[str, int], ...] = ()  # (resource, amount)

    def seen_by(self, may_read: MayRead) -> Self:
        """The same without names that a reader may not know."""
        return replace(self, whom=tuple(it.seen_by(may_read) for it in self.whom))

    @property
    def text(self) -> str:
        """What to do, or what has to happen; the only place where a cure is put into words."""
        before, after = bare(self.resource, self.before), amount(self.resource, self.before + self.count)
        fewer = amount(self.resource, self.before - self.count)
        match self.kind:
            case "end":
                verbs = "ends and frees" if len(self.whom) == 1 else "end and free"
                return f"{self._whom()} {verbs} {spell_gpus(self.count)} on {listed(self.nodes)}"
            case "release":
                return f"{self._whom()} {'finishes' if len(self.whom) == 1 else 'finish'} stopping"
            case "quota" | "limit" if len(self.whom) == 1:
                return f"raise the {self.kind} of {self.whom[0]} from {before} to {after}"
            case "quota" | "limit":
                return f"raise the {self.kind}s of {self._whom()} by {amount(self.resource, self.count)} each"
            case "fair-share" if len(self.whom) == 1:
                return f"raise the fair share of {self.whom[0]}: its quota from {before} to {after}"
            case "fair-share":
                more = amount(self.resource, self.count)
                return f"raise the fair share of {self.whom[0]}: the quotas of {self._whom()} by {more} each"
            case "priority":
                return f"raise its priority from {self.before} to {self.before + self.count}"
            case "request":
                return f"request {fewer} per task instead of {amount(self.resource, self.before)}"
            case "tasks":
                return f"reduce its minimum from {self.before} to {self.before - self.count} tasks"
            case "elastic":
                return "make it elastic (--elastic), so it can start with fewer GPUs"
            case "preemptible":
                return "make it preemptible, so it can run over quota"
            case "node-type" | "node-pool" | "node-affinity" | "topology":
                what = f"{self.kind.replace('-', ' ')} requirement"
                return f"remove its {what} ({self.where})" if self.where else f"remove its {what}"
            case "uncordon":
                return f"uncordon node {self.where}"
            case "node-ready":
                return f"bring node {self.where} back: it does not answer"
            case "taint":
                taints = f"taint{'' if len(self.taints) == 1 else 's'} {listed(self.taints)}"
                return f"remove the {taints} from node {self.where}"
            case "machines":
                has = [spell_gpus(self.count), *(amount(resource, value) for resource, value in self.needs)]
                return f"add a node with {listed(has)} to pool {self.where}"
            case "wait":
                return f"wait {spell_duration(self.count)}"
            case "resume":
                return "resume it"
        raise ValueError(f"no words for a cure of kind {self.kind!r}")

    def _whom(self) -> str:
        return listed(it.full for it in self.whom)


def sentence(cures: tuple[Cure, ...]) -> str:
    """The words for changes that are needed together."""
    return listed(cure.text for cure in cures)

"""Which nodes work may use: what it asks of their labels, their taints, and what it tolerates."""

from dataclasses import dataclass
from enum import StrEnum

HOST = "kubernetes.io/hostname"
"""The label key that keeps tasks apart on a node each."""


class Operator(StrEnum):
    """How a label is compared. A node without the label meets only NotIn and DoesNotExist."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"  # label and the one value are whole numbers, and the label's is larger
    LT = "Lt"


@dataclass(frozen=True, slots=True)
class Term:
    """One condition on the label of a node."""

    key: str
    operator: Operator = Operator.EXISTS
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Preference:
    """Nodes that meet all terms are better by `weight`."""

    weight: int  # 1 .. 100
    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Affinity:
    """What work asks of the labels of its nodes."""

    required: tuple[tuple[Term, ...], ...] = ()  # alternatives, of which one must hold with all its terms
    preferred: tuple[Preference, ...] = ()


class Effect(StrEnum):
    """What a taint does to work that does not tolerate it."""

    NO_SCHEDULE = "NoSchedule"  # no new work
    PREFER_NO_SCHEDULE = "PreferNoSchedule"  # the last nodes to be tried
    NO_EXECUTE = "NoExecute"  # no new work, and running work is evicted


@dataclass(frozen=True, slots=True)
class Taint:
    """A mark on a node that keeps work away."""

    key: str
    value: str = ""
    effect: Effect = Effect.NO_SCHEDULE
    since: int = 0  # ms; when it was put there: from then on `Toleration.lasting` counts


@dataclass(frozen=True, slots=True)
class Toleration:
    """Which taints work tolerates."""

    key: str = ""  # empty: any key, for which `any_value` must be set
    value: str = ""
    any_value: bool = False  # the operator Exists: any value
    effect: Effect | None = None  # None: every effect
    lasting: int | None = None  # ms that it stays after a NoExecute taint was put there; None: for ever

"""The part of a submission that says which nodes its tasks may use, and how near to one another."""

from typing import Annotated, Literal, Required, TypedDict

from pliant.wire.limits import Length, Looks, Range, Word
from pliant.wire.shapes import LabelKey, LabelValue


class Expression(TypedDict, total=False):
    key: Required[LabelKey]
    operator: Required[Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]]
    values: Annotated[list[LabelValue], Length(1000)]


_SOME = Looks(entries=1)


class Alternative(TypedDict, total=False):
    matchExpressions: Annotated[list[Expression], Length(100), _SOME]


class NodeAffinity(TypedDict, total=False):
    nodeSelectorTerms: Annotated[list[Alternative], Length(100)]


class Preferred(TypedDict, total=False):
    weight: Annotated[int, Looks(least=1, most=100)]  # default: 1
    matchExpressions: Annotated[list[Expression], Length(100), _SOME]


class Toleration(TypedDict, total=False):
    name: Word
    operator: Literal["Equal", "Exists"]  # default: Equal
    key: Word
    value: Word
    effect: Literal["NoSchedule", "NoExecute", "PreferNoSchedule", "Any"]
    seconds: Annotated[int, Range(1, 10**10)]
    exclude: bool


class PodAffinity(TypedDict, total=False):
    type: Literal["Required", "Preferred"]
    key: Word


class PodAntiAffinity(TypedDict, total=False):
    type: Annotated[Literal["Required", "Preferred"], Looks(words=("Required",))]
    key: LabelKey


class Nearness(TypedDict, total=False):
    name: Word  # default: one that has the levels
    requiredPlacement: Word  # a level
    preferredPlacement: Word

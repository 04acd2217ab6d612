"""The set of reasons is closed: each has a unique code and is listed in the one table."""

from pliant.model import reason
from pliant.model.reason import Reason


def test_every_reason_is_exported_under_a_code_of_its_own():
    exported = [getattr(reason, name) for name in reason.__all__]
    kinds = [it for it in exported if isinstance(it, type) and issubclass(it, Reason) and it is not Reason]
    names = {kind.__name__ for kind in Reason.__subclasses__() if kind.__module__.startswith("pliant.model")}
    assert {kind.__name__ for kind in kinds} == names
    codes = [kind.code for kind in kinds]
    assert all(codes) and len(set(codes)) == len(codes)
    assert {kind.api_code for kind in kinds} == {"", "NonPreemptibleOverQuota", "OverLimit"}

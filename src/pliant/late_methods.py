"""Compiles the methods of dataclasses when they are first called, so that a server starts sooner.

Python 3.11 and 3.12 compile each method of each dataclass by itself: a server has 400 dataclasses, and calls
few of their methods. `__init__` is compiled at once, for others read its signature. Later versions of Python
compile once for each class and are left as they are. This must be imported before what defines dataclasses.
"""

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

_Method = Callable[..., Any]


def late(compiled: Callable[[], _Method], name: str) -> _Method:
    """A method that is compiled by its first call, which puts what was compiled in its place."""
    found: list[_Method] = []

    def method(self: Any, *others: Any) -> Any:
        if not found:
            real = compiled()
            real.__qualname__ = method.__qualname__
            for owner in [cls for cls in type(self).__mro__ if cls.__dict__.get(name) is method]:
                setattr(owner, name, real)
            found.append(real)
        return found[0](self, *others)

    method.__name__ = name
    return method


def postpone() -> None:
    """From now on, in this process."""
    here: Any = dataclasses  # these four functions are its own affair
    frozen, represent, compare, digest = (
        here._frozen_get_del_attr,
        here._repr_fn,
        here._cmp_fn,
        here._hash_fn,
    )

    def _frozen_get_del_attr(cls: type, fields: Any, globals: Any) -> tuple[_Method, _Method]:
        return (
            late(lambda: frozen(cls, fields, globals)[0], "__setattr__"),
            late(lambda: frozen(cls, fields, globals)[1], "__delattr__"),
        )

    def _repr_fn(fields: Any, globals: Any) -> _Method:
        return late(lambda: represent(fields, globals), "__repr__")

    def _cmp_fn(name: str, *words: Any, globals: Any) -> _Method:
        return late(lambda: compare(name, *words, globals=globals), name)

    def _hash_fn(fields: Any, globals: Any) -> _Method:
        return late(lambda: digest(fields, globals), "__hash__")

    for made in (_frozen_get_del_attr, _repr_fn, _cmp_fn, _hash_fn):
        setattr(here, made.__name__, made)


if sys.version_info < (3, 13):
    postpone()

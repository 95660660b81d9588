"""Facts that every check and queue asks of the same observation, worked out once.

Observations are immutable, so what was derived from one holds as long as it exists. Results are kept by the
arguments' identity, as hashing a whole observation would cost more than deriving anew.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

KEPT: Final = 2
"""Results kept: an observation has two readings. Each keeps its arguments alive."""


def once(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a pure function of immutable values: asked again about the same ones, it answers at once."""
    known: tuple[tuple[tuple[object, ...], T], ...] = ()

    @wraps(function)
    def ask(*args: P.args, **kwargs: P.kwargs) -> T:
        nonlocal known
        for asked, answer in known:
            if not kwargs and len(asked) == len(args) and all(map(_same, asked, args)):
                return answer
        answer = function(*args, **kwargs)
        if kwargs:
            return answer
        # One assignment: another thread sees the old tuple or the new one.
        known = ((args, answer), *known[: KEPT - 1])
        return answer

    return ask


def _same(one: object, other: object) -> bool:
    return one is other or (isinstance(one, str) and one == other)

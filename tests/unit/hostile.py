"""A model with one text in the place of every text it holds, and the texts that have broken such formats."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, get_origin, get_type_hints

from hypothesis import strategies as st

T = TypeVar("T")

EVIL = (
    "",
    "\x00\x08\x0b\x0c\x1b[2J\x1b]0;title\x07\x7f\x9b31m",
    "]]>",
    "<![CDATA[",
    "--><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</title></style></pre><h1>",
    "&amp;&#x41;&nosuch;",
    "%0A::error::x",
    "\n::error file=a.sql::x",
    "\r::set-output name=a::b\r\n::stop-commands::x",
    "\n##[error]x",
    ",line=9::x:",
    "{0} {{1}} [a](1) [b](javascript:1)",
    "\u2028::error::x\u2029\u0085\x1c\x1d\x1e",
    "\ud800 and \udfff",
    "\ufffe\uffff\U0001ffff",
    "\u202egpj.exe\u2066",
    "Zoë 作业 \U0001f418",
    "x" * 20_000,
)

TEXTS = st.one_of(
    st.sampled_from([one for one in EVIL if len(one) < 1000]),
    st.text(
        st.one_of(
            st.sampled_from("<>&\"'%:,;]\n\r\t\x00\x1b\u2028\ud800\udfff\ufffe{}[]()-#`|\\"),
            st.characters(exclude_categories=()),
        ),
        max_size=30,
    ),
)


def filled(model: T, evil: str) -> T:
    """Return a frozen model with ``evil`` for every text that is not one of a fixed choice."""
    return _filled(model, evil)  # type: ignore[no-any-return]


def _filled(value: Any, evil: str) -> Any:
    if isinstance(value, str):
        return evil
    if isinstance(value, tuple):
        return tuple(_filled(one, evil) for one in value)
    if isinstance(value, dict):
        return {evil: evil} if value else {}
    if is_dataclass(value) and not isinstance(value, type):
        chosen = _chosen(type(value))
        return type(value)(
            **{
                one.name: getattr(value, one.name)
                if one.name in chosen
                else _filled(getattr(value, one.name), evil)
                for one in fields(value)
            }
        )
    return value


@cache
def _chosen(model: type) -> frozenset[str]:
    """Names of the fields that hold one of a fixed choice."""
    return frozenset(name for name, hint in get_type_hints(model).items() if get_origin(hint) is Literal)

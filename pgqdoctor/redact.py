"""An observation that strangers may see: who and whose data is replaced, what the checks read is kept.

Replaced, each by the same stand-in wherever it occurs: names of roles, applications, databases,
addresses, replication slots and prepared transactions; the text literals in statements, functions, index
definitions and plans; the planner's most common values; keys of jobs. Comments in statements go, as
tracing libraries put user data there. Kept: names of tables, columns, indexes and functions,
numbers, and the values of a queue's state column, without which no check could speak. It happens before
the checks run, so no sentence of theirs can hold what is not there.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from pgqdoctor.observation import (
    AttemptsProbe,
    Lack,
    Observation,
    PlanProbe,
    QueueIdentity,
    SampledSession,
    ServedKind,
    Server,
    StuckProbe,
)
from pgqdoctor.rows import (
    ColumnRow,
    FunctionRow,
    IndexRow,
    PreparedRow,
    SessionRow,
    SettingRow,
    SlotRow,
    StandbyRow,
    StatementTextRow,
    TableRow,
    VacuumRow,
)
from pgqdoctor.window import Beat, Look, Scene

_TOKEN = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?(?:\*/|\Z))
    |(?P<escape>\b[eE]'(?:[^'\\]|''|\\.)*(?:'|\Z))
    |(?P<string>'(?:[^']|'')*(?:'|\Z))
    |(?P<name>"(?:[^"]|"")*(?:"|\Z))
    |(?P<dollar>\$(?P<tag>(?:[A-Za-z_]\w*)?)\$(?P<body>.*?)(?:\$(?P=tag)\$|\Z))""",
    re.VERBOSE | re.DOTALL,
)
_UNIT = r"(?:us|ms|[smhd]|(?:microsecond|millisecond|second|sec|minute|min|hour|day|week|month|mon|year)s?)"
# Literals that the meaning of a statement hangs on and that name nobody: intervals and special values.
_HARMLESS = re.compile(
    rf"|\{{\}}|\[\]|t|f|true|false|now|infinity|-infinity|utc|(?:[\s+-]*\d+(?:\.\d+)?\s*{_UNIT})+|\d\d:\d\d:\d\d",
    re.IGNORECASE,
)
_NAMES_STANDBYS = "synchronous_standby_names"
_BUILT_IN_ROLE = "postgres"
_OWN_APPLICATION = "pgqdoctor"

Part = Scene | Beat | Look


def redact(seen: Observation) -> Observation:
    """``seen`` with stand-ins for what names people, customers and hosts; see the module's docstring."""
    redacted: Observation = _Redactor(seen).walk(seen)
    return redacted


class Redactor:
    """Redacts a stream part by part, with the same stand-ins from the first to the last."""

    def __init__(self) -> None:
        self._redactor = _Redactor()

    def part(self, part: Part) -> Part:
        """The part with stand-ins; a scene brings the state values that the parts after it keep."""
        if isinstance(part, Scene):
            self._redactor.learn(part)
        redacted: Part = self._redactor.walk(part)
        return redacted


class _Redactor:
    """Walks an observation; ``rules`` says, for a class, what its fields become."""

    def __init__(self, seen: Observation | None = None) -> None:
        self._stand_ins: dict[tuple[str, str], str] = {}
        self._counts: Counter[str] = Counter()
        self._kept: frozenset[str] = frozenset() if seen is None else _state_values(seen)
        role, application, database, text = self.role, self.application, self.named("database"), self.text
        self.rules: Mapping[type, Mapping[str, Callable[[Any], Any]]] = {
            Server: {"role": role, "database": database},
            SessionRow: {"role": role, "application": application, "database": database, "query": text},
            SampledSession: {"application": application},
            PreparedRow: {"gid": self.named("transaction"), "owner": role, "database": database},
            SlotRow: {"name": self.named("slot"), "database": database},
            StandbyRow: {"application": application, "client": self.named("client")},
            VacuumRow: {"database": database},
            StatementTextRow: {"role": role, "text": text},
            TableRow: {"owner": role},
            ColumnRow: {
                "common_values": lambda values: tuple(map(self.literal, values)),
                "seen_values": lambda values: tuple(map(self.literal, values)),
                "default_expression": text,
            },
            IndexRow: {"predicate": text, "definition": text, "expressions": text},
            FunctionRow: {"body": text},
            Observation: {"texts": lambda texts: tuple(map(text, texts))},
            Beat: {"texts": lambda texts: tuple(map(text, texts))},
            QueueIdentity: {"claim_sql": text, "ready_predicate": text, "ready_state_predicate": text},
            PlanProbe: {
                "sql": text,
                "statement": text,
                "parameters": lambda values: {name: text(value) for name, value in values.items()},
                "document": self.document,
                "error": self.sentence,
            },
            StuckProbe: {"examples": lambda keys: tuple(map(self.named("key"), keys))},
            ServedKind: {"name": self.literal},
            AttemptsProbe: {"examples": lambda keys: tuple(map(self.named("key"), keys))},
            Lack: {"reason": self.sentence, "grant": self.sentence},
        }

    def learn(self, seen: Observation | Scene) -> None:
        """Keep the values of the states of these queues, beside those kept already."""
        self._kept |= _state_values(seen)

    def walk(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(self.walk, value))
        if not dataclasses.is_dataclass(value) or isinstance(value, type):
            return value
        if isinstance(value, SettingRow):
            named = value.name == _NAMES_STANDBYS and value.setting != ""
            return (
                dataclasses.replace(value, setting=self._stand_in("standbys", value.setting))
                if named
                else value
            )
        rules = self.rules.get(type(value), {})
        changes = {}
        for field in dataclasses.fields(value):
            before = getattr(value, field.name)
            rule = rules.get(field.name, self.walk)
            changes[field.name] = None if before is None else rule(before)
        return dataclasses.replace(value, **changes)

    def named(self, kind: str) -> Callable[[str], str]:
        return lambda name: self._stand_in(kind, name)

    def role(self, name: str) -> str:
        return name if name == _BUILT_IN_ROLE else self._stand_in("role", name)

    def application(self, name: str) -> str:
        return name if name in ("", _OWN_APPLICATION) else self._stand_in("application", name)

    def literal(self, value: str) -> str:
        if value in self._kept or _HARMLESS.fullmatch(value):
            return value
        return self._stand_in("text", value)

    def text(self, sql: str) -> str:
        """A statement with its literals replaced and its comments gone; one cut off goes to the end."""
        return _TOKEN.sub(self._token, sql)

    def document(self, plan: str) -> str:
        return json.dumps(self._strings(json.loads(plan)))

    def sentence(self, text: str) -> str:
        """A sentence, of the server or the doctor, without the roles met so far and the value it quotes."""
        for (kind, name), stand_in in self._stand_ins.items():
            if kind == "role":
                text = re.sub(rf"(?<![\w.]){re.escape(name)}(?![\w.])", stand_in, text)
        return re.sub(r': "[^"]*"', ": …", text)

    def _token(self, match: re.Match[str]) -> str:
        piece = match[0]
        if match.lastgroup == "name":
            return piece
        if match["comment"] is not None:
            return " "
        if match["dollar"] is not None:
            quote = f"${match['tag']}$"
            body = match["body"]
            return quote + (self.text(body) if ";" in body else self.literal(body)) + quote
        prefix, _, rest = piece.partition("'")
        closing = rest[-1:] if rest.endswith("'") else ""
        value = rest.removesuffix("'").replace("''", "'")
        shown = self.literal(value).replace("'", "''")
        return f"{prefix}'{shown}{closing}"

    def _strings(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._strings(one) for one in value]
        if isinstance(value, dict):
            return {key: self._strings(one) for key, one in value.items()}
        return value

    def _stand_in(self, kind: str, name: str) -> str:
        key = (kind, name)
        if key not in self._stand_ins:
            self._counts[kind] += 1
            self._stand_ins[key] = f"{kind}{self._counts[kind]}"
        return self._stand_ins[key]


def _state_values(seen: Observation | Scene) -> frozenset[str]:
    """The values that say in which state a job is: those of discovery, and of the state columns."""
    states = {(queue.oid, queue.roles.state) for queue in seen.queues}
    kept: set[str] = set()
    for queue in seen.queues:
        kept.update(queue.ready_values, queue.running_values, queue.finished_values)
    for column in seen.catalog.columns:
        kept.update(column.enum_labels)
        if (column.table, column.name) in states:
            kept.update(column.common_values)
            kept.update(column.seen_values)
    return frozenset(kept)

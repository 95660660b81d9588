"""Settings files: what is read, what is refused, and how the refusal reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest

from pgqdoctor.config import (
    Config,
    QueueConfig,
    find_config,
    load_config,
    override_limits,
    parse_duration,
    validate_checks,
)
from pgqdoctor.errors import USAGE, PgqdoctorError


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    dead_rows: Annotated[int, "dead rows"] = 2_000
    share: Annotated[float, "share of all rows"] = 0.5


KNOWN = {"dead-tuples": Limits(), "heap-bloat": Limits()}


def saved(directory: Path, text: str, name: str = "pgqdoctor.toml") -> Path:
    file = directory / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def refusal(file: Path) -> str:
    with pytest.raises(PgqdoctorError) as caught:
        validate_checks(load_config(file), KNOWN)
    assert caught.value.exit_code == USAGE
    return f"{caught.value.message} | {caught.value.hint}"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10s", 10.0),
        ("250ms", 0.25),
        ("2m", 120.0),
        ("10", 10.0),
        ("1h", 3600.0),
        ("0.5s", 0.5),
        (".5 s", 0.5),
        ("24h", 86400.0),
        ("5min", 300.0),
        ("10S", 10.0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "s", "0", "0s", "0.0ms", "-5s", "25h", "1e3", "10x", "ten", "1m30s", "nan", "inf"]
)
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|between 0 and 24 hours"):
        parse_duration(text)


def test_every_key_is_read(tmp_path: Path) -> None:
    file = saved(
        tmp_path,
        """
        queues = ["public.jobs", "app.outbox"]
        window = "30s"
        fail-on = "warning"
        only = ["dead-tuples"]
        ignore = ["heap-bloat", "dead-tuples:public.jobs"]
        format = "json"
        explain = "plan"

        [limits.dead-tuples]
        dead-rows = 10
        share = 1

        [[queue]]
        name = "public.jobs"
        claim-query = "sql/claim.sql"

        [[queue]]
        name = "app.outbox"
        """,
    )
    config = load_config(file)
    assert config == Config(
        file=file,
        queues=("public.jobs", "app.outbox"),
        queue=(
            QueueConfig(name="public.jobs", claim_query=tmp_path / "sql" / "claim.sql"),
            QueueConfig(name="app.outbox"),
        ),
        window=30.0,
        fail_on="warning",
        only=("dead-tuples",),
        ignore=("heap-bloat", "dead-tuples:public.jobs"),
        format="json",
        explain="plan",
        limits={"dead-tuples": {"dead-rows": 10, "share": 1}},
    )
    validate_checks(config, KNOWN)


def test_no_file_and_an_empty_file_say_nothing(tmp_path: Path) -> None:
    assert load_config(None) == Config()
    assert load_config(saved(tmp_path, "")) == Config(file=tmp_path / "pgqdoctor.toml")


def test_a_window_may_be_a_number_of_seconds(tmp_path: Path) -> None:
    assert load_config(saved(tmp_path, "window = 15")).window == 15.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fail_on = 'warning'", "unknown key 'fail_on' | Did you mean fail-on?"),
        ("windwo = '3s'", "unknown key 'windwo' | Did you mean window?"),
        (
            "[[queue]]\nname = 'a.b'\nclaim_query = 'x'",
            "[[queue]] unknown key 'claim_query' | Did you mean claim-query?",
        ),
        ("[[queue]]\nclaim-query = 'x'", "[[queue]] name must be a text, not None"),
        ("queue = 'a.b'", "queue must be a list of [[queue]] tables, not 'a.b'"),
        ("queues = 'a.b'", "queues must be a list of names, not 'a.b'"),
        ("only = [1]", "only must be a list of names, not [1]"),
        ("window = '0s'", "window: '0s' is not between 0 and 24 hours"),
        ("window = -1", "window: -1 is not between 0 and 24 hours"),
        ("window = true", "window must be a duration such as 10s, not True"),
        ("fail-on = 'error'", "fail-on must be one of critical, warning, notice, never, not 'error'"),
        ("format = 3", "format must be a text, not 3"),
        ("explain = 'analyze'", "explain must be one of off, plan, select, lock, full, not 'analyze'"),
        ("limits = 3", "limits must be tables such as [limits.dead-tuples], not 3"),
        (
            "[limits]\ndead-tuples = 3",
            "limits.dead-tuples must be a table [limits.dead-tuples] of numbers, not 3",
        ),
        ("only = ['dead-tupels']", "only: unknown check 'dead-tupels' | Did you mean dead-tuples?"),
        ("only = ['dead-tuples:a.b']", "only: unknown check 'dead-tuples:a.b' | Did you mean dead-tuples?"),
        ("ignore = ['dead-tupel:a.b']", "ignore: unknown check 'dead-tupel' | Did you mean dead-tuples?"),
        ("ignore = ['xyz']", "ignore: unknown check 'xyz' | Known: dead-tuples, heap-bloat."),
        (
            "[limits.dead-tuple]\ndead_rows = 1",
            "limits: unknown check 'dead-tuple' | Did you mean dead-tuples?",
        ),
        (
            "[limits.dead-tuples]\ndead_row = 1",
            "[limits.dead-tuples] unknown limit 'dead_row' | Did you mean dead_rows?",
        ),
        (
            "[limits.dead-tuples]\ndead_rows = 1.5",
            "[limits.dead-tuples] dead_rows must be a whole number, not 1.5",
        ),
        (
            "window = ",
            "is not valid TOML: Invalid value (at end of document) | Mend it, or name another file",
        ),
    ],
)
def test_a_refusal_names_file_key_and_way_on(tmp_path: Path, text: str, said: str) -> None:
    file = saved(tmp_path, text)
    sentence = refusal(file)
    assert sentence.startswith(str(file))
    assert said in sentence


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "cannot be read: No such file" in refusal(tmp_path / "pgqdoctor.toml")


def test_a_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "pgqdoctor.toml"
    file.write_bytes('queues = ["caf\xe9"]'.encode("latin-1"))
    assert "is not valid TOML" in refusal(file)


class TestFinding:
    def test_the_nearest_file_upwards_is_taken(self, tmp_path: Path) -> None:
        outer = saved(tmp_path, "")
        below = tmp_path / "a" / "b"
        below.mkdir(parents=True)
        assert find_config(below) == outer
        inner = saved(tmp_path / "a", "")
        assert find_config(below) == inner

    def test_a_pyproject_serves_only_with_its_own_table(self, tmp_path: Path) -> None:
        outer = saved(tmp_path, "[tool.pgqdoctor]\nwindow = '7s'", "pyproject.toml")
        saved(tmp_path / "a", "[tool.ruff]\nline-length = 80", "pyproject.toml")
        assert find_config(tmp_path / "a") == outer
        assert load_config(outer).window == 7.0

    def test_pgqdoctor_toml_wins_over_pyproject_beside_it(self, tmp_path: Path) -> None:
        saved(tmp_path, "[tool.pgqdoctor]\nwindow = '7s'", "pyproject.toml")
        own = saved(tmp_path, "window = '8s'")
        assert find_config(tmp_path) == own

    def test_a_pyproject_named_by_hand_needs_no_table(self, tmp_path: Path) -> None:
        file = saved(tmp_path, "[project]\nname = 'x'", "pyproject.toml")
        assert load_config(file) == Config(file=file)

    def test_a_tool_entry_that_is_no_table_is_refused(self, tmp_path: Path) -> None:
        file = saved(tmp_path, "[tool]\npgqdoctor = 1", "pyproject.toml")
        with pytest.raises(PgqdoctorError, match=r"tool\.pgqdoctor must be a table, not 1"):
            find_config(file.parent)


class TestLimits:
    def test_named_fields_are_replaced_and_others_kept(self) -> None:
        assert override_limits(Limits(), {"dead-rows": 5}) == Limits(dead_rows=5, share=0.5)
        assert override_limits(Limits(), {}) == Limits()

    def test_a_whole_number_serves_where_a_float_is_wanted(self) -> None:
        share = override_limits(Limits(), {"share": 1}).share
        assert (share, type(share)) == (1.0, float)

    @pytest.mark.parametrize("value", [-1, True, "5", None, [1], float("nan"), float("inf"), 2.5])
    def test_what_is_no_number_of_the_kind_is_refused(self, value: object) -> None:
        with pytest.raises(PgqdoctorError, match="dead_rows must be a"):
            override_limits(Limits(), {"dead_rows": value})

    def test_a_limit_of_zero_is_taken(self) -> None:
        assert override_limits(Limits(), {"dead_rows": 0}).dead_rows == 0

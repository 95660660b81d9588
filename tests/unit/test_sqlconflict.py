"""INSERT ... ON CONFLICT rewritten to look first."""

from __future__ import annotations

import pytest

from pgqdoctor.sqlconflict import looks_first


def test_values_become_a_select_that_looks_first() -> None:
    assert looks_first(
        'INSERT INTO app."Jobs" (key, payload) VALUES ($1, lower($2)) ON CONFLICT (key) DO NOTHING RETURNING id'
    ) == (
        'INSERT INTO app."Jobs" (key, payload) SELECT $1, lower($2) WHERE NOT EXISTS (SELECT 1 FROM app."Jobs" AS seen '
        "WHERE seen.key = $1) ON CONFLICT (key) DO NOTHING RETURNING id;"
    )


def test_several_columns_and_quoted_names() -> None:
    assert looks_first(
        'INSERT INTO jobs (queue, "Key", n) VALUES ($1, $2, 3) ON CONFLICT (queue, "Key") DO NOTHING'
    ) == (
        'INSERT INTO jobs (queue, "Key", n) SELECT $1, $2, 3 WHERE NOT EXISTS (SELECT 1 FROM jobs AS seen '
        'WHERE seen.queue = $1 AND seen."Key" = $2) ON CONFLICT (queue, "Key") DO NOTHING;'
    )


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO jobs (key) VALUES ($1)",
        "INSERT INTO jobs (key) VALUES ($1) ON CONFLICT DO NOTHING",
        "INSERT INTO jobs (key) VALUES ($1) ON CONFLICT (key) DO UPDATE SET n = 1",
        "INSERT INTO jobs (key) VALUES ($1), ($2) ON CONFLICT (key) DO NOTHING",
        "INSERT INTO jobs (n) VALUES ($1) ON CONFLICT (key) DO NOTHING",
        "INSERT INTO jobs (key, n) VALUES ($1, DEFAULT) ON CONFLICT (key) DO NOTHING",
        "INSERT INTO jobs VALUES ($1) ON CONFLICT (key) DO NOTHING",
        "INSERT INTO jobs (key) SELECT k FROM keys ON CONFLICT (key) DO NOTHING",
        "INSERT INTO jobs (key) VALUES ($1) ON CONFLICT (lower(key)) DO NOTHING",
        "INSERT INTO jobs (key) VALUES ($1) ON CONFLICT (key) WHERE n > 0 DO NOTHING",
        "SELECT 1",
        "INSERT INTO",
    ],
)
def test_what_is_left_alone(text: str) -> None:
    assert looks_first(text) is None

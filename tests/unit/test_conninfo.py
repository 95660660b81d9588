"""Which server is meant, read back by libpq itself; and passwords that must not show."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgqdoctor.conninfo import connection_string, redact_conninfo
from pgqdoctor.errors import USAGE, PgqdoctorError

URL = "postgresql://app:secret@db.example/app"


def read(dsn: str | None = None, env: dict[str, str] | None = None, **options: Any) -> dict[str, object]:
    conninfo = connection_string(dsn, environment=env or {}, **options)
    # A URI given on the command line has already left the environment out; libpq alone reads the rest.
    return {key: value for key, value in conninfo_to_dict(conninfo).items() if value is not None}


@pytest.mark.parametrize(
    ("dsn", "options", "expected"),
    [
        (None, {}, {}),
        ("app", {}, {"dbname": "app"}),
        ("my app's", {}, {"dbname": "my app's"}),
        ("back\\slash", {}, {"dbname": "back\\slash"}),
        (
            "app",
            {"host": "/run/pg sql", "port": 5433},
            {"host": "/run/pg sql", "port": "5433", "dbname": "app"},
        ),
        (None, {"dbname": "app", "user": "me"}, {"user": "me", "dbname": "app"}),
        ("host=a dbname=b", {}, {"host": "a", "dbname": "b"}),
        ("host=a dbname=b", {"host": "c", "user": "me"}, {"host": "a", "user": "me", "dbname": "b"}),
        (None, {"dbname": "host=a dbname=b"}, {"host": "a", "dbname": "b"}),
        ("service=prod", {}, {"service": "prod"}),
        ("host = a password = 'x y'", {}, {"host": "a", "password": "x y"}),
        (URL, {}, {"user": "app", "password": "secret", "host": "db.example", "dbname": "app"}),
        ("postgres://h/d", {}, {"host": "h", "dbname": "d"}),
        ("postgresql+psycopg://h/d", {}, {"host": "h", "dbname": "d"}),
        ("postgresql://%2Frun%2Fpg/d", {}, {"host": "/run/pg", "dbname": "d"}),
        ("postgresql://h/d?options=-c%20x%3Dy@z", {}, {"host": "h", "dbname": "d", "options": "-c x=y@z"}),
        (None, {"dbname": URL}, {"user": "app", "password": "secret", "host": "db.example", "dbname": "app"}),
    ],
)
def test_what_was_given_is_what_libpq_reads(
    dsn: str | None, options: dict[str, Any], expected: dict[str, object]
) -> None:
    assert read(dsn, env={"DATABASE_URL": "postgresql://elsewhere/x"} if dsn else None, **options) == expected


class TestEnvironment:
    def test_database_url_is_the_last_resort(self) -> None:
        assert read(env={"DATABASE_URL": URL})["host"] == "db.example"

    @pytest.mark.parametrize("name", ["PGHOST", "PGSERVICE", "PGDATABASE", "PGPORT", "PGHOSTADDR"])
    def test_libpq_s_own_variables_come_before_it(self, name: str) -> None:
        assert connection_string(None, environment={name: "1", "DATABASE_URL": URL}) == ""

    @pytest.mark.parametrize("name", ["PGUSER", "PGPASSWORD", "PGSSLMODE"])
    def test_variables_that_name_no_server_complete_it(self, name: str) -> None:
        assert connection_string(None, environment={name: "1", "DATABASE_URL": URL}) == URL

    def test_an_empty_variable_is_none(self) -> None:
        assert connection_string(None, environment={"PGHOST": "", "DATABASE_URL": URL}) == URL
        assert connection_string(None, environment={"DATABASE_URL": ""}) == ""

    def test_options_come_before_it(self) -> None:
        assert read(env={"DATABASE_URL": URL}, user="me") == {"user": "me"}

    def test_another_database_s_url_is_refused(self) -> None:
        with pytest.raises(
            PgqdoctorError, match="DATABASE_URL begins with mysql://, which is not PostgreSQL"
        ):
            read(env={"DATABASE_URL": "mysql://u:secret@h/d"})


@pytest.mark.parametrize(
    ("dsn", "options"),
    [
        ("app", {"dbname": "app"}),
        (URL, {"dbname": "app"}),
        (URL, {"user": "me"}),
        (URL, {"host": "h", "port": 1}),
        ("redis://x:secret@h", {}),
        ("postgresql://u:sec@ret@h/d", {}),
        ("postgresql://u:sec/ret@h/d", {}),
        ("postgresql://u:100%secret@h/d", {}),
        ("password=my secret", {}),
        ("password='secret", {}),
        ("password='sec'ret", {}),
    ],
)
def test_contradictions_and_slips_are_refused_without_showing_a_password(
    dsn: str, options: dict[str, Any]
) -> None:
    with pytest.raises(PgqdoctorError) as caught:
        read(dsn, **options)
    assert caught.value.exit_code == USAGE
    assert caught.value.hint
    assert "sec" not in caught.value.message.removeprefix("the ")
    assert "ret" not in caught.value.message.replace("percent", "")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (URL, "postgresql://app:***@db.example/app"),
        ("postgresql://app@db.example/app", "postgresql://app@db.example/app"),
        ("postgresql://u:p@ss/word@h/d", "postgresql://u:***@h/d"),
        (
            "postgresql://h/d?user=u&password=p%20q&sslmode=require",
            "postgresql://h/d?user=u&password=***&sslmode=require",
        ),
        ("host=h password=p user=u", "host=h password=*** user=u"),
        ("host=h password = 'it\\'s me' user=u", "host=h password = *** user=u"),
        ("sslpassword=p sslkey=k", "sslpassword=*** sslkey=k"),
        ("password='open", "password=***"),
        ("passfile=/home/me/.pgpass", "passfile=/home/me/.pgpass"),
        ('connection to "h" failed: password authentication failed for user "u"',) * 2,
    ],
)
def test_passwords_are_hidden_and_the_rest_is_kept(text: str, shown: str) -> None:
    assert redact_conninfo(text) == shown


PASSWORDS = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), min_size=1)


@given(PASSWORDS)
def test_no_password_survives_in_any_spelling(password: str) -> None:
    conninfo = make_conninfo(host="h", password=password, user="u")
    expected = conninfo_to_dict(conninfo) | {"password": "***"}
    assert conninfo_to_dict(redact_conninfo(conninfo)) == expected


@given(PASSWORDS)
def test_what_libpq_quotes_is_taken_as_given(password: str) -> None:
    conninfo = make_conninfo(host="h", password=password)
    assert connection_string(conninfo, environment={}) == conninfo

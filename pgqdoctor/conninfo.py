"""Which server the user means: arguments, libpq's environment, DATABASE_URL; passwords are never shown.

Nothing here connects or needs libpq: the result is a connection string that libpq reads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pgqdoctor.errors import USAGE, PgqdoctorError

# The variables with which libpq is told where to connect. PGUSER and PGPASSWORD say as whom: they
# complete a DATABASE_URL rather than stand against it.
LOCATING_VARIABLES = ("PGSERVICE", "PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE")

_URI = re.compile(r"^(postgres(?:ql)?)(?:\+\w+)?://", re.IGNORECASE)
_SCHEME = re.compile(r"^([A-Za-z][\w+.-]*)://")
# Greedy up to the last @, as an unescaped @ or / in a password is a common mistake that must not leak.
_URI_PASSWORD = re.compile(r"(://[^:/?@]*):(.*)@", re.DOTALL)
_QUERY_PASSWORD = re.compile(r"([?&](?:ssl)?password=)[^&\s]*", re.IGNORECASE)
_KEY_PASSWORD = re.compile(
    r"((?<![?&\w])(?:ssl)?password\s*=\s*)(?:'(?:\\.|[^'\\])*'?|(?:\\.|[^\s\\])*\\?)",
    re.IGNORECASE | re.DOTALL,
)
_HIDDEN = "***"
_VALUE = r"(?:'(?:\\.|[^'\\])*'|(?:\\.|[^\s'\\])(?:\\.|[^\s\\])*|)"
_KEY_VALUE = re.compile(rf"(?:\s*\w+\s*=\s*{_VALUE}(?=\s|$))+\s*", re.DOTALL)
_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


def connection_string(
    dsn: str | None,
    *,
    host: str | None = None,
    port: int | None = None,
    user: str | None = None,
    dbname: str | None = None,
    environment: Mapping[str, str],
) -> str:
    """The connection string for what the user gave, as psql would understand it.

    ``dsn`` may be a URI (``postgresql://``, also with a driver as in ``postgresql+psycopg://``), a
    ``key=value`` string, or the bare name of a database. The options complete a key=value string or a
    name, and the string's own keys win; ``-d`` may hold a URI or key=value string too. With neither,
    libpq's environment decides (the result is empty); ``DATABASE_URL`` is taken only where no variable
    of libpq says where to connect.

    Raises PgqdoctorError (usage) where two of them contradict each other or DATABASE_URL is not PostgreSQL's.
    """
    if dsn is not None and dbname is not None:
        raise PgqdoctorError(
            "the database is given twice, as an argument and with -d/--dbname",
            hint="Leave one of them out.",
            exit_code=USAGE,
        )
    target = dsn if dsn is not None else dbname
    options = {"host": host, "port": None if port is None else str(port), "user": user}
    given = {key: value for key, value in options.items() if value is not None}
    if target is None and not given:
        return _from_environment(environment)
    if target is not None and _SCHEME.match(target):
        if given:
            raise PgqdoctorError(
                f"a connection URI and {_flags(given)} were both given",
                hint=f"Put the {' and the '.join(given)} into the URI.",
                exit_code=USAGE,
            )
        return _libpq_uri(target, "the connection URI")
    if target is not None and "=" in target:
        return " ".join([*_pairs(given), _key_value(target, "the connection string")])
    if target is not None:
        given["dbname"] = target
    return " ".join(_pairs(given))


def redact_conninfo(text: str) -> str:
    """``text`` with every password of a connection URI or key=value string in it replaced by ``***``."""
    text = _URI_PASSWORD.sub(rf"\1:{_HIDDEN}@", text)
    text = _QUERY_PASSWORD.sub(rf"\1{_HIDDEN}", text)
    return _KEY_PASSWORD.sub(rf"\1{_HIDDEN}", text)


def _from_environment(environment: Mapping[str, str]) -> str:
    url = environment.get("DATABASE_URL", "")
    if not url or any(environment.get(name) for name in LOCATING_VARIABLES):
        return ""
    return _libpq_uri(url, "DATABASE_URL") if _SCHEME.match(url) else _key_value(url, "DATABASE_URL")


def _libpq_uri(uri: str, what: str) -> str:
    """``uri`` without the driver that SQLAlchemy's URLs name in their scheme and libpq rejects."""
    if not _URI.match(uri):
        scheme = uri.split("://", 1)[0]
        raise PgqdoctorError(
            f"{what} begins with {scheme}://, which is not PostgreSQL",
            hint="Give a postgresql:// URI.",
            exit_code=USAGE,
        )
    rest = uri.split("://", 1)[1]
    # An @ may stand once, behind the credentials, and freely in the query.
    authority, _, query = rest.partition("?")
    if "=" not in query.partition("@")[0]:
        authority = rest
    before, at, after = authority.partition("@")
    stray = "@" in after.split("?", 1)[0] or (at and "/" in before)
    if stray or _BAD_PERCENT.search(rest):
        # libpq would read a piece of the password as the host or the port, and quote it in its error.
        raise PgqdoctorError(
            f"{what} holds an @, / or % that must be percent-encoded",
            hint="In a user name or password write @ as %40, / as %2F and % as %25.",
            exit_code=USAGE,
        )
    return _URI.sub(r"\1://", uri)


def _key_value(text: str, what: str) -> str:
    """``text`` if it is a series of key=value pairs; libpq's own error would quote what it stumbles over."""
    if not _KEY_VALUE.fullmatch(text):
        raise PgqdoctorError(
            f"{what} is neither a URI nor a series of key=value pairs",
            hint="Quote a value that holds spaces: password='two words'.",
            exit_code=USAGE,
        )
    return text


def _pairs(parameters: Mapping[str, str]) -> list[str]:
    return [f"{key}={_quoted(value)}" for key, value in parameters.items()]


def _quoted(value: str) -> str:
    if re.fullmatch(r"[\w./:@%+-]+", value):
        return value
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _flags(given: Mapping[str, str]) -> str:
    names = {"host": "-h/--host", "port": "-p/--port", "user": "-U/--username"}
    return " and ".join(names[key] for key in given)

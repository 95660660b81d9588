"""The SQL that reads the server: one file per probe and version floor.

``NAME.FLOOR.sql`` serves every server from ``server_version_num`` FLOOR to the next floor;
``NAME@VERSION.sql`` follows the version of the pg_stat_statements extension instead. All variants of a probe
return the same columns.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from pgqdoctor.features import highest_floor


@cache
def _sources() -> dict[str, str]:
    return {
        entry.name.removesuffix(".sql"): entry.read_text(encoding="utf-8")
        for entry in files(__name__).iterdir()
        if entry.name.endswith(".sql")
    }


def variants(name: str) -> dict[int, str]:
    """Return the SQL of a server probe by its lowest server_version_num."""
    return {
        int(stem.rpartition(".")[2]): sql
        for stem, sql in _sources().items()
        if "@" not in stem and stem.rpartition(".")[0] == name
    }


def extension_variants(name: str) -> dict[tuple[int, ...], str]:
    """Return the SQL of an extension's probe by the lowest extension version."""
    found = {}
    for stem, sql in _sources().items():
        probe, at, version = stem.partition("@")
        if at and probe == name:
            found[version_tuple(version)] = sql
    return found


def names() -> frozenset[str]:
    """Return the names of all probes for which there is SQL."""
    return frozenset(
        stem.partition("@")[0] if "@" in stem else stem.rpartition(".")[0] for stem in _sources()
    )


def load(name: str, version_num: int) -> str:
    """Return the SQL of probe ``name`` for a server version.

    Raises KeyError for an unknown probe, ValueError where no variant serves the version.
    """
    found = variants(name)
    if not found:
        raise KeyError(name)
    return found[highest_floor(version_num, tuple(found))]


def load_for_extension(name: str, version: str) -> str:
    """Return the SQL of probe ``name`` for an extension version such as "1.10".

    Raises KeyError for an unknown probe, ValueError where the extension is older than every variant.
    """
    found = extension_variants(name)
    if not found:
        raise KeyError(name)
    reached = [floor for floor in found if floor <= version_tuple(version)]
    if not reached:
        raise ValueError(f"no variant of {name} serves extension version {version}")
    return found[max(reached)]


def version_tuple(version: str) -> tuple[int, ...]:
    """Return "1.10" as (1, 10), so that versions compare as numbers."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())

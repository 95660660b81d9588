"""The command ``lint``: claims and queue tables in .sql files, without a database."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pgqdoctor.cli import FOUND, HEALTHY, SETTINGS, VERDICT, options, output, use_color, width, write
from pgqdoctor.config import find_config, load_config, require_checks, unknown, validate_checks
from pgqdoctor.errors import USAGE, PgqdoctorError
from pgqdoctor.finding import SEVERITIES
from pgqdoctor.render import FORMATS, LINT_FORMATS, Asked, render_lint

if TYPE_CHECKING:
    from collections.abc import Sequence

STDIN = "-"
DEFAULT_FAIL_ON = "warning"


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@options(output(LINT_FORMATS), VERDICT, SETTINGS)
def lint(files: tuple[str, ...], **given: Any) -> int:
    """Read claims and queue tables in .sql files; no database needed.

    A FILE may be a directory, whose *.sql files are read, or - for standard input. All files are read together: a claim is
    judged by the tables and indexes that any of them creates. "-- pgqdoctor: ignore=ID" on a line of the statement, or on the line
    above, suppresses. The exit status is 1 from --fail-on upwards; default: warning.
    """
    from pgqdoctor.lint.engine import lint as run
    from pgqdoctor.registry import all_checks

    known = {check.id: check.limits for check in all_checks()}
    only, ignore = tuple(given["only"]), tuple(given["ignore"])
    require_checks("--only", only, known)
    require_checks("--ignore", ignore, known)
    config = load_config(given["config"] or find_config(Path.cwd()))
    validate_checks(config, known)
    if config.format is not None and config.format not in FORMATS:
        raise unknown(f"{config.file}: unknown format", config.format, LINT_FORMATS)
    only, ignore = only or config.only, (*config.ignore, *ignore)
    fail_on = given["fail_on"] or config.fail_on or DEFAULT_FAIL_ON
    texts = read_files(files)
    report = run(texts, only=only, ignore=ignore)
    text = render_lint(
        report,
        given["format_"] or (config.format if config.format in LINT_FORMATS else None) or "text",
        files=[name for name, _ in texts],
        asked=Asked(only=only, ignore=ignore, fail_on=fail_on),
        color=use_color(given["output"]),
        width=width(given["output"]),
    )
    write(text, given["output"])
    if report.verdict is None or fail_on == "never":
        return HEALTHY
    return FOUND if SEVERITIES.index(report.verdict) <= SEVERITIES.index(fail_on) else HEALTHY


def read_files(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the files as (name, text), directories as the .sql files below them, each once.

    Raises PgqdoctorError (usage) for one that cannot be read.
    """
    found: dict[str, str] = {}
    for name in names:
        if name == STDIN:
            found.setdefault("<stdin>", sys.stdin.buffer.read().decode("utf-8", "replace"))
            continue
        path = Path(name)
        try:
            for file in sorted(path.rglob("*.sql")) if path.is_dir() else (path,):
                if str(file) not in found:
                    found[str(file)] = file.read_bytes().decode("utf-8-sig", "replace")
        except OSError as error:
            raise PgqdoctorError(
                f"{error.filename or name} cannot be read: {error.strerror}",
                hint="Give .sql files, directories with them, or - for standard input.",
                exit_code=USAGE,
            ) from None
    if not found:
        raise PgqdoctorError(
            f"there is no .sql file in {', '.join(names)}", hint="Name the files.", exit_code=USAGE
        )
    return list(found.items())

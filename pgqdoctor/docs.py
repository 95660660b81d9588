"""Documents made from the code: one page per check, their index, and the JSON Schema of the report.

``python -m pgqdoctor.docs`` writes them, ``python -m pgqdoctor.docs --check`` tells which are stale. It runs in a
checkout: an installed package has no docs/.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from pgqdoctor import check as needs
from pgqdoctor.check import Check
from pgqdoctor.lint.engine import SCHEMA as LINT
from pgqdoctor.lint.engine import LintReport
from pgqdoctor.registry import all_checks
from pgqdoctor.report import SCHEMA, Report
from pgqdoctor.triage import SCHEMA as TRIAGE
from pgqdoctor.triage import Triage

ROOT: Final = Path(__file__).parent.parent
PAGES: Final = Path("docs", "checks")
REPORT_SCHEMA: Final = Path("pgqdoctor", "schemas", "report.schema.json")
LINT_SCHEMA: Final = Path("pgqdoctor", "schemas", "lint.schema.json")
TRIAGE_SCHEMA: Final = Path("pgqdoctor", "schemas", "triage.schema.json")
GENERATED: Final = "<!-- Made by python -m pgqdoctor.docs; do not edit. -->"

NEEDS: Final = {
    needs.STATEMENTS: "statements and their counters from pg_stat_statements",
    needs.CLAIMS: "the queue's claim, where pg_stat_statements is known to miss statements",
    needs.ACTIVITY: "what other roles' sessions do, from pg_stat_activity",
    needs.PLAN: "the plan of the claim, from EXPLAIN",
    needs.COUNTERS: "the tables' counters on a primary, from pg_stat_user_tables",
    needs.ROWS: "SELECT on the queue, for looks that a LIMIT bounds",
}
"""What a check may need, in words; another need stands in the documents under its own name."""

SEVERITY_NOTE: Final = (
    "The severity is not fixed: it follows the harm that was measured during the window. What could not be "
    "looked at is reported as skipped, never as healthy."
)


def documents(checks: Sequence[Check]) -> dict[Path, str]:
    """Return the text of every generated file by its path below the root of the checkout."""
    pages = {PAGES / f"{one.id}.md": check_page(one) for one in checks}
    return {
        **pages,
        PAGES / "README.md": index_page(checks),
        REPORT_SCHEMA: json.dumps(report_schema(), indent=2, ensure_ascii=False) + "\n",
        LINT_SCHEMA: json.dumps(lint_schema(), indent=2, ensure_ascii=False) + "\n",
        TRIAGE_SCHEMA: json.dumps(triage_schema(), indent=2, ensure_ascii=False) + "\n",
    }


def check_page(check: Check) -> str:
    """Return the page of one check."""
    target = "each queue" if check.scope == "queue" else "the whole server, once"
    parts = [
        GENERATED,
        f"# {check.title}",
        f"Check `{check.id}`, looks at {target}."
        + (" `pgqdoctor lint` looks for it in .sql files as well." if check.lint is not None else ""),
        check.documentation,
        "## How it is measured",
        _listed(NEEDS.get(need, need) for need in check.needs)
        if check.needs
        else "From the catalogs and what every role may see; it needs no grant.",
        SEVERITY_NOTE,
        "## Limits",
        _limits(check),
    ]
    if check.look_alikes:
        parts += ["## What it does not speak about", _listed(check.look_alikes)]
    if check.references:
        parts += ["## References", _listed(f"<{address}>" for address in check.references)]
    return "\n\n".join(parts) + "\n"


def index_page(checks: Sequence[Check]) -> str:
    """Return the list of the checks with links to their pages."""
    rows = [f"| [{one.id}]({one.id}.md) | {_cell(one.title)} | {one.scope} |" for one in checks]
    parts = (
        GENERATED,
        "# The checks",
        f"{SEVERITY_NOTE} `pgqdoctor checks ID` prints one of them in the terminal.",
        "\n".join(("| check | title | looks at |", "| --- | --- | --- |", *rows)),
    )
    return "\n\n".join(parts) + "\n"


def report_schema() -> dict[str, Any]:
    """Return the JSON Schema of the report."""
    return _schema(Report, SCHEMA, "pgqdoctor report")


def lint_schema() -> dict[str, Any]:
    """Return the JSON Schema of what lint prints."""
    return _schema(LintReport, LINT, "pgqdoctor lint")


def triage_schema() -> dict[str, Any]:
    """Return the JSON Schema of the triage."""
    return _schema(Triage, TRIAGE, "pgqdoctor triage")


def _schema(model: type, schema_id: str, title: str) -> dict[str, Any]:
    """Return the JSON Schema of a model.

    msgspec takes a field with a default for optional, which it is for a reader; these are only written, and
    all of their fields always are.
    """
    schema = msgspec.json.schema(model)
    for part in schema["$defs"].values():
        if "properties" in part:
            part["required"] = list(part["properties"])
            part["description"] = " ".join(part["description"].replace("``", "`").split())
    schema["$defs"][model.__name__]["properties"]["schema"] = {"const": schema_id}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": schema_id,
        "title": title,
        **schema,
    }


def stale(root: Path, wanted: dict[Path, str]) -> list[str]:
    """Return a sentence for each generated file that is missing, out of date, or belongs to nothing."""
    found = []
    for path, text in sorted(wanted.items()):
        file = root / path
        if not file.is_file():
            found.append(f"{path} is missing")
        elif file.read_text(encoding="utf-8") != text:
            found.append(f"{path} is out of date")
    found.extend(f"{path} belongs to no check" for path in _orphans(root, wanted))
    return found


def write(root: Path, wanted: dict[Path, str]) -> list[str]:
    """Write the files that differ and return a sentence for each; remove pages of checks that are gone.

    Of the files that belong to no check only generated ones are removed; stale() names the others.
    """
    done = []
    for path, text in sorted(wanted.items()):
        file = root / path
        if file.is_file() and file.read_text(encoding="utf-8") == text:
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        done.append(f"wrote {path}")
    for path in _orphans(root, wanted):
        if (root / path).read_bytes().startswith(GENERATED.encode()):
            (root / path).unlink()
            done.append(f"removed {path}")
    return done


def main(arguments: Sequence[str] | None = None, *, root: Path = ROOT) -> int:
    """Write or check the documents; return 0, or 1 where some are stale or belong to no check."""
    parser = argparse.ArgumentParser(
        prog="python -m pgqdoctor.docs", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; list stale files and fail if there are any"
    )
    checking = parser.parse_args(arguments).check
    wanted = documents(all_checks())
    if not checking:
        for line in write(root, wanted):
            print(line)
    found = stale(root, wanted)
    for line in found:
        print(line, file=sys.stderr)
    if found and checking:
        print("python -m pgqdoctor.docs writes them anew", file=sys.stderr)
    return 1 if found else 0


def _orphans(root: Path, wanted: dict[Path, str]) -> list[Path]:
    folders = {path.parent for path in wanted}
    return sorted(
        path
        for folder in folders
        for file in (root / folder).rglob("*")
        if file.is_file() and (path := file.relative_to(root)) not in wanted
    )


def _limits(check: Check) -> str:
    notes = check.limit_notes()
    if not notes:
        return "None: the check decides without a threshold."
    rows = [f"| `{name}` | {_value(default)} | {_cell(note)} |" for name, default, note in notes]
    table = "\n".join(("| limit | default | unit and reason |", "| --- | ---: | --- |", *rows))
    name, default, _ = notes[0]
    sample = f"```toml\n[limits.{check.id}]\n{name} = {json.dumps(default)}\n```"
    return f"{table}\n\nTo set one, in `pgqdoctor.toml`:\n\n{sample}"


def _value(default: object) -> str:
    return (
        f"{default:,}" if isinstance(default, int | float) and not isinstance(default, bool) else str(default)
    )


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _listed(items: Iterable[str]) -> str:
    return "\n".join(f"- {' '.join(item.split())}" for item in items)


if __name__ == "__main__":
    sys.exit(main())

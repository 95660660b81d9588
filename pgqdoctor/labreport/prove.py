"""The report of ``lab prove``. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from pgqdoctor.lab.results import LabResult, ProveResult
from pgqdoctor.labreport.document import Document, Listing, Table, facts, listings
from pgqdoctor.render.quantities import number


def prove_document(result: LabResult) -> Document:
    """The report of proofs."""
    cells = result.prove()
    return Document(
        title="Faults reproduced, reported, cured and reported again",
        says=tuple(_says(cells)),
        charts=(),
        tables=(_summary(cells), *(table for cell in cells for table in _findings(cell))),
        listings=(*(one for cell in cells for one in _treated(cell)), *listings(result)),
        method=(
            "Each scenario ran under load on a server of its own. It was observed as 'pgqdoctor report' does, the "
            "statements that 'pgqdoctor fix' would carry out were executed, and it was observed again until the "
            "findings were gone or the patience was over. A fault of the application has no such statement, or "
            "none that suffices: there the scenario's own cure was applied, and the report says so.",
            *result.notes,
        ),
        facts=facts(result),
    )


def _says(cells: tuple[ProveResult, ...]) -> Iterator[str]:
    for cell in cells:
        how = (
            f"the cure of the scenario ({cell.scenario_cure})" if cell.scenario_cure else "the remedies alone"
        )
        before, after = cell.claim_buffers_before, cell.claim_buffers_after
        buffers = (
            f"; a claim touched {number(before)} buffers before and {number(after)} after"
            if before is not None and after is not None
            else ""
        )
        checks = ", ".join(cell.expected)
        if not cell.expected:
            yield f"{cell.title}: nothing was found, so there was nothing to cure{buffers}."
        elif cell.proven:
            yield f"{cell.scenario}: {checks} spoke, and {how} silenced it{buffers}."
        else:
            missing = [one for one in cell.expected if one not in {found.check for found in cell.before}]
            still = [one.key for one in cell.after if one.check in cell.expected]
            why = (
                f"{', '.join(missing)} did not speak"
                if missing
                else f"{', '.join(still)} still speaks after {how}"
            )
            yield f"{cell.scenario} is not proven: {why}{buffers}."


def _summary(cells: tuple[ProveResult, ...]) -> Table:
    return Table(
        title="Before and after",
        headers=("scenario", "proven", "found before", "found after", "claim buffers", "transactions/s"),
        rows=tuple(
            (
                cell.scenario,
                "yes" if cell.proven else "no",
                str(len(cell.before)),
                str(len(cell.after)),
                f"{_or_unknown(cell.claim_buffers_before)} to {_or_unknown(cell.claim_buffers_after)}",
                f"{cell.transactions_per_s_before:,.0f} to {cell.transactions_per_s_after:,.0f}",
            )
            for cell in cells
        ),
        right=(2, 3, 4, 5),
    )


def _findings(cell: ProveResult) -> Iterator[Table]:
    for when, found in (("before", cell.before), ("after", cell.after)):
        yield Table(
            title=f"{cell.scenario}, report {when}",
            headers=("severity", "check", "finding"),
            rows=tuple((one.severity, one.check, one.title) for one in found) or (("", "", "nothing found"),),
            right=(),
        )


def _treated(cell: ProveResult) -> Iterator[Listing]:
    if cell.applied:
        yield Listing(title=f"{cell.scenario}: applied", statements=cell.applied, important=True)
    if cell.refused:
        yield Listing(
            title=f"{cell.scenario}: not applied",
            statements=tuple(f"-- {' '.join(one.split())}" for one in cell.refused),
            important=True,
        )


def _or_unknown(value: int | None) -> str:
    return "unknown" if value is None else number(value)

"""The report as one HTML page, for a ticket, a mail or a print: nothing loaded from elsewhere, no script, every name escaped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pgqdoctor.finding import Remedy
from pgqdoctor.render import phrases
from pgqdoctor.render.page import CONTENT_POLICY, code, shown, sql_block, table
from pgqdoctor.render.quantities import counted, quantity
from pgqdoctor.report import Report, ReportedFinding
from pgqdoctor.story import story_of, tree_of
from pgqdoctor.triangle import Triangle

STYLE: Final = """
:root { color-scheme: light dark; --ink: #1f2328; --faint: #59636e; --ground: #ffffff; --card: #f6f8fa; --rule: #d1d9e0;
  --critical: #b3261e; --warning: #8a5a00; --notice: #0b5cad; --healthy: #1a7431; --unsure: #59636e; --on: #ffffff; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --faint: #9198a1; --ground: #0d1117; --card: #161b22; --rule: #3d444d;
    --critical: #ff8d85; --warning: #e3b341; --notice: #79b8ff; --healthy: #56d364; --unsure: #9198a1; --on: #0d1117; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 980px; margin: 0 auto; padding: 32px 24px 64px; overflow-wrap: break-word; }
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 4px; }
h2 { font-size: 20px; margin: 40px 0 12px; }
h3 { font-size: 17px; line-height: 1.35; margin: 0 0 4px; }
h4 { font-size: 15px; margin: 20px 0 6px; }
p { margin: 0 0 10px; max-width: 80ch; }
a { color: inherit; }
.sub, .where, .because, summary, .legend { color: var(--faint); }
.sub { margin: 0 0 20px; }
.story { font-size: 18px; background: var(--card); border-left: 4px solid var(--ink); border-radius: 4px;
  padding: 12px 16px; max-width: none; }
.gap { font-weight: 600; }
.mark { display: inline-block; font-size: 12px; line-height: 1; font-weight: 700; letter-spacing: .04em; padding: 4px 6px;
  border-radius: 4px; color: var(--on); vertical-align: 2px; text-transform: uppercase; }
.critical .mark, .mark.critical { background: var(--critical); }
.warning .mark, .mark.warning { background: var(--warning); }
.notice .mark, .mark.notice { background: var(--notice); }
.mark.healthy { background: var(--healthy); }
.mark.unsure { background: var(--unsure); }
.tree { list-style: none; padding: 0; margin: 16px 0 0; }
.tree li { margin: 4px 0; }
.finding { border: 1px solid var(--rule); border-left: 4px solid var(--rule); border-radius: 8px; padding: 16px 18px;
  margin: 0 0 16px; }
.finding.critical { border-left-color: var(--critical); }
.finding.warning { border-left-color: var(--warning); }
.finding.notice { border-left-color: var(--notice); }
.d1 { margin-left: 24px; } .d2 { margin-left: 48px; }
.where, .because { font-size: 14px; margin: 0 0 6px; max-width: none; }
.because { margin-bottom: 10px; }
.remedy { border-top: 1px solid var(--rule); margin-top: 16px; }
.wide { overflow-x: auto; margin: 8px 0 12px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
caption { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
th, td { padding: 5px 10px 5px 0; text-align: left; border-bottom: 1px solid var(--rule); vertical-align: top; }
thead th { color: var(--faint); font-weight: 600; vertical-align: bottom; }
tbody th { font-weight: 400; }
.n { text-align: right; white-space: nowrap; }
code, pre { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: 13px; }
pre { background: var(--card); border: 1px solid var(--rule); border-radius: 8px; padding: 10px 12px; margin: 6px 0 10px;
  line-height: 1.45; white-space: pre-wrap; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 14px; margin: 0; font-size: 14px; }
dt { color: var(--faint); } dd { margin: 0; }
summary { cursor: pointer; font-size: 14px; }
.legend { font-size: 13px; max-width: none; }
h3 code { font-size: 15px; }
section > h3 { margin-top: 20px; }
footer { color: var(--faint); font-size: 14px; margin-top: 40px; border-top: 1px solid var(--rule); padding-top: 12px; }
@media (max-width: 640px) { main { padding: 20px 14px 40px; } h1 { font-size: 20px; } .d1, .d2 { margin-left: 10px; } }
@media print {
  :root { color-scheme: light; --ink: #000000; --faint: #444444; --ground: #ffffff; --card: #ffffff; --rule: #999999;
    --critical: #b3261e; --warning: #8a5a00; --notice: #0b5cad; --healthy: #1a7431; --unsure: #59636e; --on: #ffffff; }
  body { font-size: 11pt; } main { max-width: none; padding: 0; }
  .mark { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  .wide { overflow: visible; }
  h2, h3, h4 { break-after: avoid; } tr, pre, .story { break-inside: avoid; }
  details::details-content { content-visibility: visible; block-size: auto; }
}
"""
DEEPEST: Final = 2
"""Steps to the right: a longer chain keeps this, so that its tables have room."""


def render_report(report: Report, *, color: bool, width: int) -> str:
    """Write the report as a page; unlike the text it leaves nothing out."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    word = phrases.verdict_word(report)
    name = report.server.database
    yield "<!DOCTYPE html>"
    yield '<html lang="en">'
    yield '<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    yield CONTENT_POLICY
    yield f"<title>{shown(f'{word.lower()}: {name}')} - pgqdoctor</title>"
    yield f"<style>{STYLE}</style></head>"
    yield "<body><main>"
    yield "<header>"
    kind = report.verdict
    style = kind if kind != "healthy" or word == "HEALTHY" else "unsure"
    found = phrases.verdict_found(report)
    says = f"{found[:1].upper()}{found[1:]} {phrases.looked_at(report)}"
    yield f'<h1><span class="mark {shown(style)}">{shown(word)}</span> {shown(says)}</h1>'
    yield f'<p class="sub">{shown(phrases.observed(report))}</p>'
    if gap := phrases.gaps(report):
        yield f'<p class="gap">{shown(gap)}</p>'
    yield from _story(report)
    yield "</header>"
    yield from _findings(report)
    yield from _crashed(report)
    yield from _queues(report)
    yield from _knobs(report)
    yield from _not_seen(report)
    yield from _notes(report)
    yield f"<footer>{shown(report.tool.name)} {shown(report.tool.version)}. It reads only; nothing was applied.</footer>"
    yield "</main></body></html>"


def _story(report: Report) -> Iterator[str]:
    """The worst chain as one sentence, and which finding causes which."""
    sentence = story_of(report)
    # A root alone is told by its own title below.
    if sentence and sentence.rstrip(".") not in {one.title for one in report.findings}:
        yield f'<p class="story">{shown(sentence)}</p>'
    tree = tree_of(report)
    if not any(one.depth for one in tree):
        return
    yield '<nav aria-label="What causes what"><ol class="tree">'
    for place, one in enumerate(tree, 1):
        on = f" on {code(one.finding.queue)}" if one.finding.queue is not None else ""
        depth = f' style="margin-left:{24 * min(one.depth, 6)}px"' if one.depth else ""
        branch = "&#x2514; " if one.depth else ""
        yield (
            f"<li{depth}>{branch}{_mark(one.finding)} "
            f'<a href="#finding-{place}">{place}. {code(one.finding.check)}</a>{on}</li>'
        )
    yield "</ol></nav>"


def _findings(report: Report) -> Iterator[str]:
    if not report.findings:
        return
    depth = phrases.depths(report.findings)
    numbers = {one.key: place for place, one in enumerate(report.findings, 1)}
    titles = {one.key: one.title for one in report.findings}
    yield f"<section><h2>{shown(counted(len(report.findings), 'finding'))}, causes first</h2>"
    for place, one in enumerate(report.findings, 1):
        step = min(depth[one.key], DEEPEST)
        yield f'<article id="finding-{place}" class="finding {shown(one.severity)}{f" d{step}" if step else ""}">'
        yield from _finding(one, place, numbers, titles)
        yield "</article>"
    yield "</section>"


def _finding(
    finding: ReportedFinding, place: int, numbers: Mapping[str, int], titles: Mapping[str, str]
) -> Iterator[str]:
    yield f"<h3>{place}. {_mark(finding)} {shown(finding.title)}</h3>"
    on = f" on {code(finding.queue)}" if finding.queue is not None else ""
    yield f'<p class="where">{code(finding.check)}{on}</p>'
    for key in finding.caused_by:
        if key in numbers:
            cause = f'<a href="#finding-{numbers[key]}">{numbers[key]}</a>: {shown(titles[key])}'
        else:
            cause = shown(key)
        yield f'<p class="because">because of {cause}</p>'
    yield f"<p>{shown(finding.why)}</p>"
    if finding.evidence:
        yield f"<details open><summary>Evidence ({len(finding.evidence)})</summary>"
        yield from table(
            phrases.EVIDENCE_HEADERS,
            [
                (shown(one.what), shown(quantity(one.value, one.unit)), shown(one.source))
                for one in finding.evidence
            ],
            caption=f"Evidence of finding {place}",
        )
        yield "</details>"
    for number, remedy in enumerate(finding.remedies, 1):
        yield from _remedy(remedy, number)


def _remedy(remedy: Remedy, place: int) -> Iterator[str]:
    yield '<div class="remedy">'
    yield f"<h4>Remedy {place} ({shown(phrases.KINDS[remedy.kind])}): {shown(remedy.title)}</h4>"
    if remedy.sql:
        yield sql_block(remedy.sql)
    facts = [
        (label, said)
        for label, said in (
            ("lock", phrases.remedy_takes(remedy)),
            ("risk", remedy.risk),
            ("expect", remedy.expect),
            ("undo", "none" if phrases.has_no_undo(remedy) else ""),
        )
        if said
    ]
    if facts:
        yield "<dl>" + "".join(f"<dt>{label}</dt><dd>{shown(said)}</dd>" for label, said in facts) + "</dl>"
    if remedy.undo:
        yield f"<details open><summary>To undo it</summary>{sql_block(remedy.undo)}</details>"
    yield "</div>"


def _crashed(report: Report) -> Iterator[str]:
    if not report.crashed:
        return
    yield "<section><h2>Crashed</h2>"
    yield "<p>These checks failed and say nothing; please report them.</p>"
    yield _listed([f"{code(one.check)}: {shown(one.error)}" for one in report.crashed])
    yield "</section>"


def _queues(report: Report) -> Iterator[str]:
    if not report.queues:
        return
    rows = []
    for queue in report.queues:
        name, *cells = phrases.queue_row(queue)
        rows.append((code(name), *(shown(cell) for cell in cells)))
    yield "<section><h2>Queues</h2>"
    yield from table(
        phrases.QUEUE_HEADERS,
        rows,
        caption="The queues that were found",
        right=range(1, len(phrases.QUEUE_HEADERS)),
    )
    yield "</section>"


def _knobs(report: Report) -> Iterator[str]:
    """Where each queue stands between claim index, fillfactor and heap-only updates, and the one thing to do."""
    known = [(one.name, one.triangle) for one in report.queues if one.triangle is not None]
    if not known:
        return
    printed = {remedy.sql for finding in report.findings for remedy in finding.remedies}
    numbers = {one.key: place for place, one in enumerate(report.findings, 1)}
    yield "<section><h2>Knobs</h2>"
    for name, triangle in known:
        yield from _triangle(name, triangle, numbers)
        for place, remedy in enumerate(triangle.recommendation.remedies, 1):
            # A finding's remedy is the same SQL, and stands above.
            if remedy.sql not in printed:
                yield from _remedy(remedy, place)
    yield f'<p class="legend">{shown(phrases.DESIGN_LEGEND)}</p>'
    yield "</section>"


def _triangle(name: str, triangle: Triangle, numbers: Mapping[str, int]) -> Iterator[str]:
    yield f"<h3>{code(name)}</h3>"
    rows = [phrases.design_row(one) for one in triangle.corners if one.why_not is None]
    yield from table(
        phrases.DESIGN_HEADERS,
        [tuple(shown(cell) for cell in row) for row in rows],
        caption=f"Designs of {name}",
        right=range(1, len(phrases.DESIGN_HEADERS)),
    )
    advice = triangle.recommendation
    asked = phrases.asked_for(advice, numbers)
    yield f"<p><strong>{shown(advice.title)}</strong>: {shown(f'{advice.reason}. {asked}')}</p>"
    turned = [knob for knob in triangle.knobs if phrases.turned(knob)]
    if turned:
        yield "<ul>"
        for knob in turned:
            yield f"<li>{shown(phrases.knob_line(knob, advice))}"
            if knob.arithmetic:
                yield f"<details><summary>Arithmetic</summary>{_listed([shown(one) for one in knob.arithmetic])}</details>"
            yield "</li>"
        yield "</ul>"


def _not_seen(report: Report) -> Iterator[str]:
    groups = phrases.not_seen(report)
    if not groups:
        return
    yield "<section><h2>Not looked at</h2>"
    items = []
    for one in groups:
        on = f" (on {', '.join(map(code, one.queues))})" if one.queues else ""
        grant = f"; to see it: {code(one.grant)}" if one.grant else ""
        items.append(f"{', '.join(map(code, one.checks))}{on}: {shown(one.reason)}{grant}")
    yield _listed(items)
    yield "</section>"


def _notes(report: Report) -> Iterator[str]:
    notes = phrases.notes(report)
    if notes:
        yield f"<section><h2>Notes</h2>{_listed([shown(one) for one in notes])}</section>"


def _mark(finding: ReportedFinding) -> str:
    return f'<span class="mark {shown(finding.severity)}">{shown(finding.severity)}</span>'


def _listed(items: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{one}</li>" for one in items) + "</ul>"

"""A lab report as one HTML page: no script, nothing loaded from elsewhere, every name escaped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pgqdoctor.labreport.document import Chart, Document, Listing, Table
from pgqdoctor.render.page import CONTENT_POLICY, shown, sql_block

STYLE: Final = """
:root { color-scheme: light dark; --ink: #1f2328; --faint: #59636e; --ground: #ffffff; --card: #f6f8fa; --rule: #d1d9e0; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --faint: #9198a1; --ground: #0d1117; --card: #161b22; --rule: #3d444d; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 32px 24px 64px; }
h1 { font-size: 28px; line-height: 1.2; margin: 0 0 4px; }
h2 { font-size: 19px; margin: 40px 0 12px; }
.sub { color: var(--faint); margin: 0 0 24px; }
.says { padding: 0; margin: 0; list-style: none; display: grid; gap: 8px; }
.says li { background: var(--card); border-left: 4px solid #0072b2; border-radius: 4px; padding: 10px 14px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(480px, 100%), 1fr)); gap: 20px; }
figure { margin: 0; padding: 8px; border: 1px solid var(--rule); border-radius: 8px; }
figure svg { display: block; width: 100%; height: auto; color: var(--ink); }
.wide { overflow-x: auto; border: 1px solid var(--rule); border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: 5px 8px; text-align: left; border-bottom: 1px solid var(--rule); vertical-align: top; }
th { background: var(--card); font-weight: 600; vertical-align: bottom; }
td:first-child { white-space: nowrap; }
details { margin: 0 0 8px; }
summary { cursor: pointer; color: var(--faint); }
tr:last-child td { border-bottom: 0; }
.n { text-align: right; }
td.n { white-space: nowrap; }
.method p { color: var(--faint); max-width: 85ch; margin: 0 0 10px; }
pre { background: var(--card); border: 1px solid var(--rule); border-radius: 8px; padding: 12px; overflow-x: auto;
  font: 13px/1.45 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre-wrap; }
.facts td:first-child { white-space: nowrap; font-weight: 600; }
.facts td { overflow-wrap: anywhere; }
"""


def render_html(document: Document) -> str:
    """The page."""
    return "\n".join(_lines(document)) + "\n"


def _lines(document: Document) -> Iterator[str]:
    title = shown(document.title)
    yield "<!DOCTYPE html>"
    yield '<html lang="en">'
    yield '<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    yield CONTENT_POLICY
    yield f"<title>{title} - pgqdoctor lab</title>"
    yield f"<style>{STYLE}</style></head>"
    yield "<body><main>"
    yield f"<h1>{title}</h1>"
    about = [value for key, value in document.facts if key == "Run" or key.startswith("Server")]
    yield f'<p class="sub">{" &middot; ".join(map(shown, about))}</p>'
    if document.says:
        yield '<ul class="says">'
        yield from (f"<li>{shown(sentence)}</li>" for sentence in document.says)
        yield "</ul>"
    if document.charts:
        yield "<h2>Charts</h2>"
        yield '<div class="charts">'
        yield from map(_chart, document.charts)
        yield "</div>"
    for table in document.tables:
        yield from _table(table)
    shown_at_once = [one for one in document.listings if one.important]
    for listing in shown_at_once:
        yield from _listing(listing)
    yield '<h2>How it was measured</h2><div class="method">'
    yield from (f"<p>{shown(sentence)}</p>" for sentence in document.method)
    yield "</div>"
    yield '<div class="wide"><table class="facts"><tbody>'
    yield from (f"<tr><td>{shown(key)}</td><td>{shown(value)}</td></tr>" for key, value in document.facts)
    yield "</tbody></table></div>"
    folded = [one for one in document.listings if not one.important]
    if folded:
        yield "<h2>What was run</h2>"
        for listing in folded:
            yield f"<details><summary>{shown(listing.title)}</summary>{sql_block(listing.statements)}</details>"
    yield "</main></body></html>"


def _chart(chart: Chart) -> str:
    return f"<figure>{chart.inline}</figure>"


def _table(table: Table) -> Iterator[str]:
    def cell(tag: str, place: int, text: str) -> str:
        kind = ' class="n"' if place in table.right else ""
        return f"<{tag}{kind}>{shown(text)}</{tag}>"

    yield f"<h2>{shown(table.title)}</h2>"
    yield '<div class="wide"><table><thead><tr>'
    yield "".join(cell("th", place, head) for place, head in enumerate(table.headers))
    yield "</tr></thead><tbody>"
    for row in table.rows:
        yield "<tr>" + "".join(cell("td", place, text) for place, text in enumerate(row)) + "</tr>"
    yield "</tbody></table></div>"


def _listing(listing: Listing) -> Iterator[str]:
    yield f"<h2>{shown(listing.title)}</h2>"
    yield sql_block(listing.statements)

"""What holds for every report in every format: harmless for a terminal and in Markdown, nothing lost, no wrong health."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from pgqdoctor.errors import USAGE, PgqdoctorError
from pgqdoctor.finding import Evidence
from pgqdoctor.render import FORMATS, QUEUE_FORMATS, render, render_queues
from pgqdoctor.render.clean import LEFT_OUT, one_line, statement
from pgqdoctor.render.escape import code, text
from pgqdoctor.render.phrases import NotSeen, depths, gaps, not_seen, queue_row, verdict_word
from pgqdoctor.render.quantities import counted, duration, number, percent, quantity, size
from pgqdoctor.render.sqlshow import breaks_inside_token, wrapped_sql
from pgqdoctor.render.tables import text_table
from pgqdoctor.render.text import WIDEST
from pgqdoctor.report import Report, Skipped
from tests.golden.reports import (
    CLAIM,
    DEAD,
    GUARD,
    HEALTHY,
    HORIZON,
    INCOMPLETE,
    JOBS,
    LONG,
    NO_QUEUE,
    OUTBOX,
    REPORTS,
    SICK,
    SKIPPED,
)

SGR = re.compile(r"\x1b\[[0-9;]*m")
NASTY = st.text(
    st.one_of(
        st.sampled_from("\x1b\x9b\x07\\`*_[]()<>|&#@!$~-+=:/ .\n\r\t\u202e\u2066\u2028\u200b"),
        st.characters(),
    ),
    max_size=40,
)


def written(report: Report, format_: str = "text", *, width: int = 80) -> str:
    return render(report, format_, color=False, width=width)


def unsafe(shown: str) -> list[str]:
    """Letters that a terminal or a reader's eye would take for something else."""
    return [
        letter
        for letter in shown
        if unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp") and letter not in "\n\t\u200c\u200d"
    ]


class TestQuantities:
    @pytest.mark.parametrize(
        ("value", "unit", "shown"),
        [
            (4711, "", "4711"),
            ("public.jobs", "", "public.jobs"),
            ("1,5", "GB", "1,5 GB"),
            (True, "", "yes"),
            (1234, "rows", "1,234 rows"),
            (1, "rows", "1 row"),
            (1, "entries", "1 entry"),
            (1, "index searches", "1 index searches"),
            (0, "rows", "0 rows"),
            (1.0, "rows per second", "1 row per second"),
            (4905, "buffers", "4,905 buffers"),
            (25_244, "transactions", "25,244 transactions"),
            (1_234_567, "transactions", "1.23 million transactions"),
            (250.4, "seconds", "4 min"),
            (0.2, "ms", "0.2 ms"),
            (892_928, "bytes", "872 kB"),
            (892_928, "bytes per second", "872 kB per second"),
            (0.1234, "ratio", "12%"),
            (12.34, "percent", "12%"),
            (12.34, "per second", "12 per second"),
            (float("nan"), "rows", "nan rows"),
            (float("inf"), "seconds", "inf seconds"),
        ],
    )
    def test_evidence(self, value: int | float | str, unit: str, shown: str) -> None:
        assert quantity(value, unit) == shown

    @pytest.mark.parametrize(
        ("value", "shown"),
        [
            (0, "0"),
            (0.01234, "0.01"),
            (0.4567, "0.5"),
            (9.96, "10"),
            (12.345, "12"),
            (267.2, "267"),
            (999_400, "999,400"),
            (1_000_000, "1 million"),
            (999_999_999, "1 billion"),
            (2_147_483_648, "2.15 billion"),
            (1_500_000_000_000, "1,500 billion"),
            (-1234, "-1,234"),
        ],
    )
    def test_numbers(self, value: float, shown: str) -> None:
        assert number(value) == shown

    @pytest.mark.parametrize(
        ("seconds", "shown"),
        [
            (0, "0 s"),
            (0.0002, "0.2 ms"),
            (0.9994, "999 ms"),
            (0.9996, "1 s"),
            (0.044, "44 ms"),
            (0.4, "400 ms"),
            (12.34, "12 s"),
            (119.4, "119 s"),
            (250.4, "4 min"),
            (3599.6, "60 min"),
            (12_000, "3 h 20 min"),
            (86_399, "24 h"),
            (190_800, "2 days"),
            (-5, "-5 s"),
        ],
    )
    def test_durations(self, seconds: float, shown: str) -> None:
        assert duration(seconds) == shown

    @pytest.mark.parametrize(
        ("count", "shown"),
        [
            (0, "0 bytes"),
            (1, "1 byte"),
            (999, "999 bytes"),
            (8192, "8 kB"),
            (892_928, "872 kB"),
            (1_610_612_736, "1.5 GB"),
            (2**70, "1,048,576 PB"),
        ],
    )
    def test_sizes(self, count: int, shown: str) -> None:
        assert size(count) == shown

    def test_shares_and_counts(self) -> None:
        assert [percent(one) for one in (0, 0.0001, 0.004, 0.0213, 0.97, 0.996, 0.9999, 1, 12.5)] == [
            "0%",
            "under 0.1%",
            "0.4%",
            "2%",
            "97%",
            "99.6%",
            "99.9%",
            "100%",
            "1,250%",
        ]
        assert [counted(one, "query") for one in (1, 2)] == ["1 query", "2 queries"]
        assert counted(1200, "check") == "1,200 checks"


class TestClean:
    @pytest.mark.parametrize(
        ("given", "shown"),
        [
            ("a\x1b[31mb\x1b[0m", "ab"),
            ("a\x9b2Jb", "ab"),
            ("a\x1b]0;title\x07b", "a0;titleb"),
            ("a\x1b] is not swallowed", "a is not swallowed"),
            ("a\x1b", "a"),
            ("two\nlines\tand  gaps\r", "two lines and gaps"),
            ("exe\u202egpj", "exegpj"),
            ("a\u2028b", "a b"),
            ("a\x00b\x7fc", "abc"),
            ("half \ud800", "half \ufffd"),
            ("Zoë, 作业, \u0645\u06cc\u200c\u062e", "Zoë, 作业, \u0645\u06cc\u200c\u062e"),
        ],
    )
    def test_one_line(self, given: str, shown: str) -> None:
        assert one_line(given) == shown

    def test_sql_keeps_its_lines(self) -> None:
        shown = statement("SELECT 1,\r\n\t2;\n")
        assert shown.lines() == ["SELECT 1,", "\t2;"]

    def test_sql_that_lost_something_can_not_be_run(self) -> None:
        shown = statement("DELETE FROM jobs\nWHERE state = 'a\x1b[1mb'")
        assert shown.lines() == [LEFT_OUT, "-- DELETE FROM jobs", "-- WHERE state = 'ab'"]

    @settings(deadline=None)
    @given(NASTY)
    def test_nothing_unsafe_is_left(self, given: str) -> None:
        assert unsafe(one_line(given)) == []
        assert unsafe(statement(given).text) == []
        assert "\n" not in one_line(given)


class TestSql:
    def test_newline_in_a_string_forbids_an_indent(self) -> None:
        assert breaks_inside_token("SELECT 'a\nb'")
        assert breaks_inside_token('SELECT 1 AS "a\nb"')
        assert breaks_inside_token("SELECT 'open\n")
        assert not breaks_inside_token("SELECT 'a'\nFROM b -- it's\n")

    def test_a_statement_is_wrapped_and_stays_the_same(self) -> None:
        shown = wrapped_sql(CLAIM, width=60)
        assert max(map(len, shown.splitlines())) < len(CLAIM) / 2
        assert "".join(shown.split()) == "".join(CLAIM.split())

    @pytest.mark.parametrize(
        "sql", ["SELEC 1", "SELECT 1; SELECT 2", "SELECT '", "", "SELECT 1 FROM jobs WHERE ..."]
    )
    def test_what_is_no_single_statement_comes_back(self, sql: str) -> None:
        assert wrapped_sql(sql, width=60) == sql


class TestTable:
    def test_wide_cells_are_wrapped_between_words(self) -> None:
        lines = text_table(("what", "value"), [("a", "word " * 20)], width=40)
        assert max(map(len, lines)) <= 40
        assert lines[0] == "what  value"

    def test_a_name_is_never_broken(self) -> None:
        name = "public." + "x" * 60
        assert any(name in line for line in text_table(("what", "value"), [("a b c", name)], width=40))

    def test_numbers_stay_as_they_are_written(self) -> None:
        lines = text_table(("a", "b"), [("1,234", "1e5"), ("007", "0.50")], width=40, right=[1])
        assert lines == ["a         b", "1,234   1e5", "007    0.50"]


class TestEscape:
    @pytest.mark.parametrize(
        ("given", "shown"),
        [
            ("public.jobs_done", "public.jobs_done"),
            ("_a_ *b* `c`", "\\_a\\_ \\*b\\* \\`c\\`"),
            ("<b>&", "&lt;b&gt;&amp;"),
            ("a|b\\", "a&#124;b&#92;"),
            ("- item", "\\- item"),
            ("12. item", "12\\. item"),
            ("1.23 million", "1.23 million"),
            ("---", "-\\--"),
            ("@octocat", "@\u200boctocat"),
            ("see #12", "see \\#\u200b12"),
            ("http://a.b www.c", "http:\u200b//a.b www\u200b.c"),
            ("[a](b)", "\\[a\\](b)"),
        ],
    )
    def test_text(self, given: str, shown: str) -> None:
        assert text(given) == shown

    def test_code(self) -> None:
        assert code('public."Email Outbox"') == '`public."Email Outbox"`'
        assert code("a`b|c") == "a\\`b&#124;c"
        assert code("") == ""


class TestEveryFormat:
    @pytest.mark.parametrize("name", REPORTS)
    @pytest.mark.parametrize("format_", [*FORMATS])
    def test_says_what_was_found_skipped_and_crashed(self, format_: str, name: str) -> None:
        report = replace(REPORTS[name], findings=REPORTS[name].findings[:20])
        shown = written(report, format_)
        for named in (
            *(one.check for one in report.findings),
            *(one.check for one in report.skipped[:12]),
            *(one.check for one in report.crashed),
        ):
            assert named in shown
        assert shown.endswith("\n")
        assert not shown.endswith("\n\n")

    @pytest.mark.parametrize("format_", [*FORMATS])
    @settings(deadline=None)
    @given(evil=NASTY)
    def test_is_harmless_for_a_terminal(self, format_: str, evil: str) -> None:
        # Markdown breaks mentions with zero-width spaces of its own.
        assert unsafe(written(hostile(evil), format_).replace("\u200b", "")) == []

    @pytest.mark.parametrize("format_", [*QUEUE_FORMATS])
    @settings(deadline=None)
    @given(evil=NASTY)
    def test_the_list_of_queues_is_harmless_too(self, format_: str, evil: str) -> None:
        assert unsafe(render_queues(hostile(evil), format_, color=False, width=80)) == []

    def test_half_a_surrogate_pair_costs_no_report(self) -> None:
        shown = written(replace(HEALTHY, notes=("half \ud800",)), "json")
        assert shown == written(replace(HEALTHY, notes=("half ?",)), "json")

    def test_another_format_is_a_usage_error(self) -> None:
        with pytest.raises(PgqdoctorError, match="the report cannot be written as 'xml'") as raised:
            written(SICK, "xml")
        assert raised.value.exit_code == USAGE
        with pytest.raises(PgqdoctorError, match="the list of queues cannot be written as 'markdown'"):
            render_queues(SICK, "markdown", color=False, width=80)


def hostile(evil: str) -> Report:
    """A report that holds ``evil`` wherever a server can put a text."""
    finding = replace(
        GUARD,
        key=f"claim-unguarded:{evil}",
        queue=f"q{evil}",
        title=f"a{evil}b",
        why=f"{evil} and words",
        caused_by=(f"gone{evil}",),
        evidence=(Evidence(what=evil, value=f"v{evil}", unit="", source=evil),),
        remedies=tuple(
            replace(
                one,
                title=f"t{evil}t",
                sql=(f"SELECT '{evil}';",),
                undo=(f"SELECT '{evil}';",),
                risk=f"r{evil}",
                expect=f"e{evil}",
            )
            for one in GUARD.remedies
        ),
    )
    return replace(
        INCOMPLETE,
        verdict="notice",
        server=replace(HEALTHY.server, database=f"d{evil}d", role=f"r{evil}r", version=f"17{evil}"),
        findings=(finding,),
        queues=(
            replace(
                JOBS,
                name=f"q{evil}",
                framework=f"f{evil}",
                recognised_by=(evil,),
                ready=replace(JOBS.ready, predicate=evil),
                claim=replace(JOBS.claim, sql=f"SELECT '{evil}'"),
            ),
        ),
        skipped=tuple(
            replace(one, queue=f"q{evil}", reason=f"r{evil}", grant=f"g{evil}") for one in SKIPPED.skipped
        ),
        crashed=tuple(replace(one, error=f"e{evil}") for one in INCOMPLETE.crashed),
        notes=(f"n{evil}",),
    )


class TestMarkdown:
    READER = MarkdownIt("commonmark", {"linkify": False}).enable(["table", "strikethrough"])

    def shape(self, report: Report) -> list[str]:
        """The kinds of its blocks and of the markup inside, without texts."""
        found = []
        for token in self.READER.parse(written(report, "markdown")):
            found.append(token.type)
            found.extend(
                inside.type
                for inside in token.children or ()
                if inside.type not in ("text", "text_special", "code_inline")
            )
        return found

    @settings(deadline=None)
    @given(evil=NASTY)
    def test_no_name_makes_markup(self, evil: str) -> None:
        assert self.shape(hostile(evil)) == self.shape(hostile("plain"))

    @settings(deadline=None)
    @given(evil=NASTY)
    def test_names_are_shown_as_they_are(self, evil: str) -> None:
        inline = self.READER.parseInline(text(evil))[0]
        shown = "".join(token.content for token in inline.children or ())
        assert shown.replace("\u200b", "") == one_line(evil)

    def test_a_fence_is_longer_than_the_backticks_in_it(self) -> None:
        blocks = [
            token.content
            for token in self.READER.parse(written(REPORTS["hostile"], "markdown"))
            if token.type == "fence"
        ]
        assert len(blocks) == 1
        assert "lines ```' WHERE id = 1;" in blocks[0]


class TestText:
    @pytest.mark.parametrize("name", REPORTS)
    @pytest.mark.parametrize(("width", "most"), [(80, 80), (100, 100), (250, WIDEST)])
    def test_only_sql_and_single_words_go_beyond_the_width(self, name: str, width: int, most: int) -> None:
        report = REPORTS[name]
        advised = [
            remedy
            for queue in report.queues
            if queue.triangle is not None
            for remedy in queue.triangle.recommendation.remedies
        ]
        found = [remedy for finding in report.findings for remedy in finding.remedies]
        sql = {
            line.strip()
            for remedy in (*found, *advised)
            for one in (*remedy.sql, *remedy.undo)
            for line in statement(one).lines()
        }
        beyond = [line.strip() for line in written(report, width=width).splitlines() if len(line) > most]
        assert [line for line in beyond if line not in sql and " " in line] == []

    def test_a_grant_is_not_wrapped(self) -> None:
        grant = "GRANT pg_monitor TO " + "r" * 63
        shown = written(replace(SKIPPED, skipped=(replace(SKIPPED.skipped[0], grant=grant),)))
        assert f"    to see it: {grant}\n" in shown

    def test_sql_stands_there_as_it_is_to_be_pasted(self) -> None:
        shown = written(SICK)
        for one in SICK.findings:
            for remedy in one.remedies:
                for sql in (*remedy.sql, *remedy.undo):
                    assert any(textwrap.indent(sql, " " * indent) + "\n" in shown for indent in (6, 9))

    def test_a_string_with_a_newline_is_not_indented(self) -> None:
        assert "\nUPDATE jobs SET state = 'two\nlines ```' WHERE id = 1;\n" in written(REPORTS["hostile"])

    @pytest.mark.parametrize("name", REPORTS)
    def test_colour_adds_nothing_but_colour(self, name: str) -> None:
        colored = render(REPORTS[name], "text", color=True, width=80)
        assert SGR.sub("", colored) == written(REPORTS[name])
        assert colored != written(REPORTS[name])

    def test_the_first_line_says_the_worst_and_where(self) -> None:
        first = " ".join(written(SICK).split("\n\n")[0].split())
        assert (
            first == "CRITICAL: 2 critical, 1 warning, 1 notice in database app, PostgreSQL 17.10, over 10 s"
        )

    def test_effects_follow_their_cause_and_name_it(self) -> None:
        shown = written(SICK)
        assert "\n   2. WARNING: Dead rows" in shown
        assert "\n      because of 1: Session 4711" in shown
        assert "\n      3. CRITICAL: Each claim" in shown
        assert "\n         because of 2: Dead rows" in shown
        assert "\n4. NOTICE" in shown

    def test_a_cause_that_is_not_told_is_named_by_its_key(self) -> None:
        alone = replace(SICK, findings=(DEAD,))
        assert depths(alone.findings) == {DEAD.key: 0}
        assert f"because of: {HORIZON.key}" in written(alone)

    def test_a_long_list_says_what_it_leaves_out(self) -> None:
        shown = written(LONG)
        assert shown.count("... and 5 more (--format json shows all)") == 2
        assert "... and 2 more (--format json shows all)" in shown
        assert "... and 3 more (--format json shows all)" in shown

    def test_a_note_that_repeats_a_reason_is_told_once(self) -> None:
        shown = " ".join(written(INCOMPLETE).split())
        assert shown.count("pg_stat_statements is not installed") == 1
        assert "The window was cut short" in shown


class TestHealth:
    """Only what was looked at is ever called healthy."""

    @pytest.mark.parametrize(
        ("report", "word"),
        [
            (HEALTHY, "HEALTHY"),
            (SICK, "CRITICAL"),
            (NO_QUEUE, "NO QUEUE FOUND"),
            (INCOMPLETE, "INCOMPLETE"),
            (SKIPPED, "HEALTHY AS FAR AS SEEN"),
            (replace(NO_QUEUE, crashed=INCOMPLETE.crashed), "INCOMPLETE"),
            (replace(NO_QUEUE, skipped=SKIPPED.skipped), "NO QUEUE FOUND"),
            (replace(SICK, crashed=INCOMPLETE.crashed), "CRITICAL"),
        ],
    )
    def test_the_word(self, report: Report, word: str) -> None:
        assert verdict_word(report) == word
        assert written(report).startswith(f"{word}: ")

    @pytest.mark.parametrize(
        ("oldest", "word"), [(9.9, "HEALTHY"), (10.0, "NO FAULT FOUND"), (None, "NO FAULT FOUND")]
    )
    def test_jobs_that_wait_without_a_claim(self, oldest: float | None, word: str) -> None:
        (queue,) = HEALTHY.queues
        rates = replace(queue.rates, claimed_per_s=None, updates_per_s=0.0)
        waiting = replace(queue, ready=replace(queue.ready, rows=3, oldest_age_s=oldest), rates=rates)
        report = replace(HEALTHY, queues=(waiting,), window=replace(HEALTHY.window, seconds=10.0))
        assert verdict_word(report) == word
        says = "jobs of public.jobs wait and no claim was seen in database" in " ".join(
            written(report).split()
        )
        assert says == (word != "HEALTHY")
        claimed = replace(waiting, rates=replace(rates, claimed_per_s=0.1))
        assert verdict_word(replace(report, queues=(claimed,))) == "HEALTHY"

    @pytest.mark.parametrize("format_", ["text", "markdown"])
    def test_no_queue_says_what_was_looked_for(self, format_: str) -> None:
        shown = " ".join(written(NO_QUEUE, format_).split())
        assert "Looked for: claim statements in pg_stat_statements" in shown
        assert "healthy" not in shown.lower()

    def test_findings_without_a_queue_say_so(self) -> None:
        assert "1 notice, no queue found in database" in written(
            replace(NO_QUEUE, verdict="notice", findings=(GUARD,))
        )

    def test_gaps_count_checks_not_queues(self) -> None:
        assert (
            gaps(INCOMPLETE)
            == "Not the whole picture: 2 checks crashed and 4 checks could not look; see below."
        )
        assert gaps(HEALTHY) == ""

    def test_skipped_checks_are_joined_only_where_queues_are_the_same(self) -> None:
        skipped = tuple(
            Skipped(check=check, queue=queue, reason="hidden", grant=None)
            for check, queue in (("a", "q1"), ("a", "q2"), ("b", "q1"), ("b", "q2"), ("c", "q2"), ("d", None))
        )
        assert not_seen(replace(HEALTHY, skipped=skipped)) == tuple(
            NotSeen(reason="hidden", grant=None, checks=checks, queues=queues)
            for checks, queues in ((("a", "b"), ("q1", "q2")), (("c",), ("q2",)), (("d",), ()))
        )

    def test_a_healthy_report_is_short(self) -> None:
        assert len(written(HEALTHY).splitlines()) < 10


class TestQueues:
    def test_what_was_not_seen_is_no_zero(self) -> None:
        assert queue_row(OUTBOX) == ('public."Email Outbox"', "?", "?", "?", "?", "-", "0")

    def test_a_count_that_ended_at_its_limit(self) -> None:
        ready = replace(JOBS.ready, rows=10_000, exact=False)
        assert queue_row(replace(JOBS, ready=ready))[1] == "10,000+"

    def test_no_ready_job_has_no_age(self) -> None:
        assert queue_row(replace(JOBS, ready=replace(JOBS.ready, rows=0, oldest_age_s=None)))[1:3] == (
            "0",
            "-",
        )

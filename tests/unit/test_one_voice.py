"""Report, triage, fix and knobs of one observation agree: over the recordings and over observations made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pgqdoctor import avoid, recommended, remedy
from pgqdoctor.avoid import Avoid
from pgqdoctor.engine import diagnose
from pgqdoctor.finding import Finding
from pgqdoctor.forecast import HARM_WITHIN_S, Forecast, matters, sentence
from pgqdoctor.observation import Observation
from pgqdoctor.queue import build_queues
from pgqdoctor.recording import last_observation
from pgqdoctor.render import phrases
from pgqdoctor.render.script import fix_script, undo_script
from pgqdoctor.rows import SessionRow
from pgqdoctor.steps import treatment
from pgqdoctor.triage import without_contradictions
from pgqdoctor.triangle import Triangle, triangle_of
from tests.checks import build
from tests.checks.test_claim_sorts_backlog import PRIMARY
from tests.checks.test_claim_sorts_backlog import sorting as backlog
from tests.one_voice import disagreements
from tests.unit.test_triage import asked, holder, sick
from tests.unit.test_triangle import PKEY, look, plan

RECORDINGS = sorted((Path(__file__).parents[2] / "fixtures" / "observations").glob("*.pgqd"))


def scanning(removed: int = 900, claim: str = build.CLAIM) -> Observation:
    """Claims read a table without an index of their own; by default below the limits of the checks."""
    return look(
        indexes=(PKEY,), of_plan=plan(index=None, buffers=400, removed=removed), hot=1_000, claim=claim
    )


def sorting(ready: int = 30_000, calls: int = 10, updates: int = 400_000) -> Observation:
    """Claims that sort the backlog, among so many other updates that an index does not pay by their number."""
    of = tuple(
        build.reading(
            at,
            statements=(build.calls("1/10/1", calls * share),),
            tables=(build.counters(updated=updates * share, hot_updated=updates * share),),
        )
        for at, share in ((0.0, 0), (build.WINDOW_S, 1))
    )
    return build.observation(
        statements={"1/10/1": (build.CLAIM, calls, calls)},
        first=of[0],
        last=of[1],
        of=build.catalog(indexes=PRIMARY),
        probes=(build.probe(plans=(backlog(ready),)),),
    )


def reported(seen: Observation) -> Triangle:
    found = diagnose(seen).queues[0].triangle
    assert found is not None
    return found


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda one: one.stem)
def test_recordings(path: Path) -> None:
    assert disagreements(last_observation(path)) == []


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(sick(), id="held"),
        pytest.param(sick(holder(state="active")), id="held by a statement"),
        pytest.param(build.observation(), id="healthy"),
        pytest.param(scanning(), id="an index that no finding asks for"),
        pytest.param(scanning(removed=19_900), id="an index that a finding asks for"),
        pytest.param(sorting(), id="an index that only a finding asks for"),
    ],
)
def test_made_by_hand(seen: Observation) -> None:
    assert disagreements(seen) == []


class TestKnobs:
    def test_an_index_that_only_a_finding_asks_for_is_theirs_too(self) -> None:
        seen = sorting()
        report = diagnose(seen)
        (asking,) = (one for one in report.findings if one.check == "claim-sorts-backlog")
        found = reported(seen)
        assert found.recommendation.action == "create-index"
        assert found.recommendation.asked_by == (asking.key,)
        assert found.recommendation.remedies == asking.remedies[:1]
        (knob,) = (one for one in found.knobs if one.name == "claim index")
        assert (knob.verdict, knob.computed) == ("change", "(run_at, id) WHERE state = 'queued'")

    def test_what_no_finding_asks_for_is_an_optional_step(self) -> None:
        report = diagnose(scanning())
        assert not [one for one in report.findings if "INDEX" in str(one.remedies)]
        advice = reported(scanning()).recommendation
        assert (advice.action, advice.asked_by) == ("create-index", ())
        steps = treatment(report)
        (step,) = steps.optional
        assert step.remedy.sql == advice.remedies[0].sql
        assert not step.acts
        script = fix_script(report, steps)
        assert "--- Optional: what the knobs recommend" in script
        assert "-- CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_ready_idx" in script
        assert "DROP INDEX CONCURRENTLY IF EXISTS public.jobs_ready_idx" in undo_script(report, steps)
        assert phrases.asked_for(advice, {}).startswith("No finding asks for it")

    def test_a_finding_that_asks_for_it_is_named_and_its_statements_taken(self) -> None:
        seen = scanning(removed=19_900)
        report = diagnose(seen)
        (finding,) = [one for one in report.findings if one.check == "claim-scans-consumed-rows"]
        advice = reported(seen).recommendation
        assert advice.asked_by == (finding.key,)
        assert advice.remedies == finding.remedies
        assert treatment(report).optional == ()
        assert phrases.asked_for(advice, {finding.key: 3}) == "It is the remedy of finding 3."

    def test_both_expect_the_same_of_one_index(self) -> None:
        seen = scanning(removed=19_900)
        (queue,) = build_queues(seen)
        alone = triangle_of(seen, queue)
        assert alone is not None
        (offered,) = alone.recommendation.remedies
        (asked_for,) = reported(seen).recommendation.remedies
        assert asked_for.expect.startswith(offered.expect.partition(" instead")[0])

    def test_what_has_to_wait_for_a_culprit_is_not_recommended_before(self) -> None:
        seen = scanning()
        (queue,) = build_queues(seen)
        alone = triangle_of(seen, queue)
        assert alone is not None
        held = Finding(
            check="vacuum-horizon-held",
            severity="critical",
            queue=queue.name,
            title="held",
            why="",
            evidence=(),
            remedies=(remedy.end_session(pid=7, gently=False, title="End", expect="", risk=""),),
            pids=(7,),
            relations=(queue.oid,),
        )
        with_holder = replace(
            seen, last=replace(seen.last, sessions=(build.session(7, xmin=3, xmin_age=90_000),))
        )
        told = recommended.agreed(with_holder, queue, alone, (held,)).recommendation
        assert told.remedies == ()
        assert told.reason.endswith(
            "Comes after the end of session 7 (vacuum-horizon-held), for whose snapshot the building of an index would wait"
        )

    def test_an_order_that_no_index_gives_is_no_reason_for_one(self) -> None:
        ranked = build.CLAIM.replace("ORDER BY", "ORDER BY CASE state WHEN 'queued' THEN 1 ELSE 2 END,")
        assert ranked != build.CLAIM
        told = reported(scanning(claim=ranked)).recommendation
        assert told.action == "leave"
        assert "no index can give the order" in told.reason


class TestAvoid:
    def test_vacuum_comes_after_the_culprit(self) -> None:
        seen = sick()
        found = asked(seen)
        vacuums = [one for one in found.steps if any("VACUUM" in sql for sql in one.sql)]
        for one in found.avoid:
            if one.what == avoid.VACUUM and vacuums:
                assert one.until == "before step 1 is done"
        assert all(one.when == "then" for one in vacuums)

    def test_a_step_is_dropped_that_would_add_workers_where_they_only_wait(self) -> None:
        first, second = asked(sick()).steps[:2]
        more = replace(second, title="Unless another finding explains it: add 20% more workers at least")
        told = (Avoid(what=avoid.ADD, why="they would wait"),)
        assert without_contradictions(told, (first, more)) == (told, (first,))
        kept = replace(first, number=1, when="first")
        assert without_contradictions(told, (replace(more, number=1), replace(first, number=2))) == (
            told,
            (kept,),
        )

    def test_nothing_forbids_what_is_to_be_done_first(self) -> None:
        (first, *_) = asked(sick()).steps
        vacuum = replace(first, sql=("SET lock_timeout = '2s';", "VACUUM (TRUNCATE false) jobs;"))
        told = (
            Avoid(what=avoid.VACUUM, why="it removes nothing"),
            Avoid(what=avoid.VACUUM_FULL, why="it locks"),
        )
        assert without_contradictions(told, (vacuum,)) == (told[1:], (vacuum,))

    @pytest.mark.parametrize(
        ("sql", "full"),
        [
            ("VACUUM FULL jobs;", True),
            ("VACUUM (VERBOSE, FULL) jobs;", True),
            ("VACUUM (TRUNCATE false) full_jobs;", False),
        ],
    )
    def test_vacuum_full_is_told_from_vacuum(self, sql: str, full: bool) -> None:
        assert avoid.forbids(avoid.VACUUM_FULL, (sql,), "") is full
        assert avoid.forbids(avoid.VACUUM, (sql,), "")


class TestForecasts:
    def foretold(self, seconds: float | None) -> Forecast:
        return Forecast(what="it takes 100 ms", queue=None, seconds=seconds, how="")

    def test_only_what_comes_within_a_day_is_told(self) -> None:
        assert [matters(self.foretold(one)) for one in (0.0, HARM_WITHIN_S, HARM_WITHIN_S + 1, None)] == [
            True,
            True,
            False,
            True,
        ]
        assert sentence(self.foretold(41 * 3_600.0)) == ""
        assert sentence(self.foretold(60.0)) == " If it goes on, it takes 100 ms."

    def test_a_healthy_queue_is_foretold_nothing(self) -> None:
        busy = build.observation(
            last=build.reading(build.WINDOW_S, tables=(build.counters(deleted=2_000),)),
            probes=(build.probe(ready_rows=90_000, oldest_ready_age_s=1.0),),
        )
        found = asked(busy)
        assert (found.root, found.forecasts) == (None, ())


class TestRoles:
    def test_the_narrower_setting_is_offered(self) -> None:
        (_, setting) = next(
            one for one in diagnose(sick(holder(role="report er"))).findings if not one.caused_by
        ).remedies[:2]
        assert setting.sql == (
            "ALTER ROLE \"report er\" IN DATABASE app SET idle_in_transaction_session_timeout = '60s';",
        )
        assert setting.undo == (
            'ALTER ROLE "report er" IN DATABASE app RESET idle_in_transaction_session_timeout;',
        )
        assert "ALTER SYSTEM" in setting.risk

    def test_the_server_s_where_the_role_is_not_known(self) -> None:
        unknown: SessionRow = holder(role=None)
        (_, setting) = next(one for one in diagnose(sick(unknown)).findings if not one.caused_by).remedies[:2]
        assert setting.sql[0].startswith("ALTER SYSTEM SET")

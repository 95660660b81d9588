"""Links are drawn only where the observation shows them; remedies that have to wait are withheld, and the finding says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pgqdoctor import remedy
from pgqdoctor.causes import RULES, link_and_order, waiting_for, withhold
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.observation import Observation, Sample
from pgqdoctor.registry import all_checks
from pgqdoctor.rows import LockRow
from tests.checks import build

HORIZON = "vacuum-horizon-held"
QUEUE = "public.jobs"


def finding(check: str, severity: Severity = "warning", **changes: Any) -> Finding:
    known = Finding(
        check=check,
        severity=severity,
        queue=QUEUE,
        title=f"{check} of {QUEUE}: 1",
        why="Because.",
        evidence=(),
        remedies=(),
        relations=(build.JOBS,),
    )
    return replace(known, **changes)


def number(what: str, value: float, unit: str = "rows") -> Evidence:
    return Evidence(what=what, value=value, unit=unit, source="here")


def held(kept: int = 8_000, pid: int = 41, **changes: Any) -> Finding:
    return finding(
        HORIZON,
        "critical",
        pids=(pid,),
        evidence=(number("dead rows it keeps", kept), number("age of its xmin", 9_000, "transactions")),
        remedies=(remedy.end_session(pid=pid, gently=False, title=f"End session {pid}", expect="", risk=""),),
        **changes,
    )


def vacuum(title: str = "Vacuum it", options: str = "") -> Remedy:
    return remedy.statement(
        sql=(remedy.LOCK_TIMEOUT, f"VACUUM {options}{' ' if options else ''}public.jobs;"),
        title=title,
        expect="",
        risk="",
        lock="SHARE UPDATE EXCLUSIVE",
    )


def threshold() -> Remedy:
    return remedy.set_storage(
        QUEUE, {"autovacuum_vacuum_threshold": "1000"}, {}, title="Vacuum more often", expect=""
    )


def index() -> Remedy:
    return remedy.create_index(
        schema="public",
        table="jobs",
        name="jobs_ready_idx",
        columns=("run_at",),
        predicate="state = 'queued'",
        title="Give the claim an index",
        expect="",
        risk="",
    )


def observed(dead: int = 10_000, snapshot: bool = True, **last: Any) -> Observation:
    holder = build.session(
        41, state="idle in transaction", xmin=700 if snapshot else None, xid=None if snapshot else 700
    )
    tables = last.pop("tables", (build.counters(dead=dead, deleted=2_000),))
    sessions = last.pop("sessions", (holder,))
    return build.observation(
        first=build.reading(0.0, sessions=sessions),
        last=build.reading(build.WINDOW_S, sessions=sessions, tables=tables, **last),
    )


def linked(seen: Observation, *findings: Finding) -> dict[str, Finding]:
    return {one.check: one for one in link_and_order(seen, (), findings)}


def order(seen: Observation, *findings: Finding) -> list[str]:
    return [one.check for one in link_and_order(seen, (), findings)]


def waits(
    pid: int, *blockers: int, relation: int | None = build.JOBS, mode: str = "RowExclusiveLock"
) -> LockRow:
    return LockRow(
        pid=pid,
        locktype="relation",
        database=1,
        relation=relation,
        mode=mode,
        granted=not blockers,
        wait_age_s=5.0 if blockers else None,
        classid=None,
        objid=None,
        blocked_by=blockers,
    )


class TestLinks:
    def test_every_rule_names_checks_that_exist_or_are_in_the_contract(self) -> None:
        known = {check.id for check in all_checks()}
        named = {name for rule in RULES for name in (rule.cause, rule.effect)}
        assert len(named & known) > len(known) / 2
        assert not [name for name in named if not name.replace("-", "").isalpha()]

    def test_a_horizon_that_keeps_most_dead_rows_causes_them(self) -> None:
        found = linked(observed(dead=10_000), held(kept=8_000), finding("dead-tuples"))
        assert found["dead-tuples"].caused_by == (f"{HORIZON}:{QUEUE}",)

    def test_a_horizon_that_keeps_few_of_them_does_not(self) -> None:
        found = linked(observed(dead=10_000), held(kept=4_999), finding("dead-tuples"))
        assert found["dead-tuples"].caused_by == ()

    def test_what_a_claim_walked_counts_rather_than_all_dead_rows(self) -> None:
        walks = finding("claim-scans-dead-rows", evidence=(number("dead entries, at least", 3_000),))
        found = linked(observed(dead=50_000), held(kept=2_000), walks)
        assert found["claim-scans-dead-rows"].caused_by == (f"{HORIZON}:{QUEUE}",)

    def test_another_queue_is_another_story(self) -> None:
        found = linked(observed(), held(), finding("dead-tuples", queue="public.mails"))
        assert found["dead-tuples"].caused_by == ()

    def test_settings_cause_dead_rows_up_to_twice_their_trigger(self) -> None:
        settings = finding("autovacuum-settings", evidence=(number("autovacuum's trigger", 24_000),))
        for dead, expected in ((48_000, ("autovacuum-settings:public.jobs",)), (48_001, ())):
            found = linked(observed(dead=dead), settings, finding("dead-tuples"))
            assert found["dead-tuples"].caused_by == expected

    def test_an_index_that_blocks_hot_causes_dead_rows_only_where_updates_make_them(self) -> None:
        blocked = finding("hot-blocked-by-index", "notice", subject="jobs_idx")
        updates = (build.counters(dead=9_000, updated=1_000, hot_updated=0, deleted=500),)
        deletes = (build.counters(dead=9_000, updated=1_000, hot_updated=900, deleted=500),)
        assert linked(observed(tables=updates), blocked, finding("dead-tuples"))["dead-tuples"].caused_by
        assert not linked(observed(tables=deletes), blocked, finding("dead-tuples"))["dead-tuples"].caused_by

    def test_one_session_links_a_claim_held_open_with_the_horizon(self) -> None:
        claim = finding("claim-transaction-held", pids=(40, 41))
        assert linked(observed(), claim, held(pid=41))[HORIZON].caused_by == (
            f"claim-transaction-held:{QUEUE}",
        )
        assert linked(observed(), claim, held(pid=42))[HORIZON].caused_by == ()

    def test_waiters_are_found_through_others_that_wait(self) -> None:
        seen = observed(locks=(waits(7), waits(8, 7), waits(9, 8), waits(10, 99)))
        assert waiting_for(seen, (7,)) == {8, 9}

    def test_a_chain_of_waits_links_the_line_with_who_stands_in_it(self) -> None:
        seen = observed(locks=(waits(8, 7), waits(9, 8)))
        line = finding("lock-queue", "critical", pids=(7,))
        assert linked(seen, line, finding("claim-not-skip-locked", pids=(9,)))[
            "claim-not-skip-locked"
        ].caused_by
        assert not linked(seen, line, finding("claim-not-skip-locked", pids=(10,)))[
            "claim-not-skip-locked"
        ].caused_by

    def test_connections_are_full_because_of_a_line_that_most_of_them_stand_in(self) -> None:
        line = finding("lock-queue", "critical", pids=(7,))
        full = finding("connections-saturated", queue=None, relations=())
        for backends, expected in ((4, ("lock-queue:public.jobs",)), (5, ())):
            seen = observed(locks=(waits(8, 7), waits(9, 8)), database=build.database(backends=backends))
            assert linked(seen, line, full)["connections-saturated"].caused_by == expected

    def test_a_dear_claim_makes_the_backlog_grow_where_workers_spend_their_time_at_it(self) -> None:
        walks, backlog = finding("claim-scans-dead-rows"), finding("backlog-growing")
        for busy, expected in ((50, ("claim-scans-dead-rows:public.jobs",)), (49, ())):
            at_claim = build.sampled(9, query_id=1)
            samples = tuple(
                Sample(at=place / 10, sessions=(at_claim,) if place < busy else ()) for place in range(100)
            )
            seen = replace(observed(), samples=samples)
            assert linked(seen, walks, backlog)["backlog-growing"].caused_by == expected

    def test_a_notice_does_not_explain_a_backlog(self) -> None:
        found = linked(observed(), finding("claim-not-skip-locked", "notice"), finding("backlog-growing"))
        assert found["backlog-growing"].caused_by == ()

    def test_the_server_wide_effect_of_a_queues_statement(self) -> None:
        found = linked(
            observed(), finding("multixact-from-subtransaction"), finding("multixact-slru-waits", queue=None)
        )
        assert found["multixact-slru-waits"].caused_by == (f"multixact-from-subtransaction:{QUEUE}",)

    def test_freezing_waits_for_a_holder_about_as_old_as_the_database(self) -> None:
        wrap = finding("xid-wraparound", queue=None)
        old = observed(database=build.database(xid_age=18_000))
        older = observed(database=build.database(xid_age=18_001))
        assert linked(old, held(), wrap)["xid-wraparound"].caused_by
        assert not linked(older, held(), wrap)["xid-wraparound"].caused_by

    def test_a_circle_is_broken_where_it_would_close(self) -> None:
        claim = finding("claim-transaction-held", pids=(7,))
        line = finding("lock-queue", "critical", pids=(7,))
        seen = observed(locks=(waits(7, 7),))
        found = linked(seen, claim, line)
        assert [one.caused_by for one in found.values()].count(()) == 1


class TestMoreLinks:
    def test_row_counts_explain_no_plan_that_lacks_its_index(self) -> None:
        stale = finding("stale-statistics", "notice")
        lacking = linked(observed(), stale, finding("claim-sorts-backlog", remedies=(index(),)))
        assert lacking["claim-sorts-backlog"].caused_by == ()
        served = linked(observed(), stale, finding("claim-sorts-backlog"))
        assert served["claim-sorts-backlog"].caused_by == (f"stale-statistics:{QUEUE}",)

    def test_one_prepared_transaction_does_both(self) -> None:
        resolve = remedy.statement(
            sql=("ROLLBACK PREPARED 'jta_1';",), title="Resolve it", expect="", risk="", lock=""
        )
        found = linked(
            observed(), finding("lock-queue", remedies=(resolve,)), finding(HORIZON, remedies=(resolve,))
        )
        assert found[HORIZON].caused_by == (f"lock-queue:{QUEUE}",)
        assert "Done with the remedy of lock-queue" in found[HORIZON].why
        assert (
            linked(observed(), finding("lock-queue"), finding(HORIZON, remedies=(resolve,)))[
                HORIZON
            ].caused_by
            == ()
        )

    def test_a_lock_that_hides_ready_jobs_is_no_reason_to_ask_less_often(self) -> None:
        back_off = remedy.change_application(title="Wait before asking again", expect="", risk="")
        polls = finding("claim-empty-polls", remedies=(back_off,))
        wide = linked(observed(), finding("claim-lock-too-strong", subject="joins queues"), polls)
        assert wide["claim-empty-polls"].caused_by == (f"claim-lock-too-strong:{QUEUE}:joins queues",)
        assert wide["claim-empty-polls"].remedies == ()
        children = linked(observed(), finding("claim-lock-too-strong", subject="log_job_fkey"), polls)
        assert children["claim-empty-polls"].caused_by == ()
        assert children["claim-empty-polls"].remedies == (back_off,)

    def test_a_transaction_that_keeps_jobs_locked_starves_the_others(self) -> None:
        holder = finding("claim-transaction-held")
        locked = finding(
            "claim-empty-polls", subject="starved", title="Claims find nothing: others hold the locks"
        )
        shut_out = finding(
            "claim-empty-polls", subject="starved", title="Claims find nothing: the claim's conditions"
        )
        assert linked(observed(), holder, locked)["claim-empty-polls"].caused_by == (holder.key,)
        assert linked(observed(), holder, shut_out)["claim-empty-polls"].caused_by == ()


class TestOrder:
    def test_a_cause_stands_before_its_effects_and_the_worse_story_first(self) -> None:
        seen = observed(dead=9_000)
        findings: Sequence[Finding] = (
            finding("claim-unguarded"),
            finding("claim-scans-dead-rows", "critical"),
            finding("dead-tuples"),
            held(),
        )
        assert order(seen, *findings) == [HORIZON, "dead-tuples", "claim-scans-dead-rows", "claim-unguarded"]
        assert order(seen, *reversed(findings)) == order(seen, *findings)

    def test_nothing_gets_lost(self) -> None:
        ids = [check.id for check in all_checks()]
        found = link_and_order(observed(), (), tuple(finding(one, pids=(41,)) for one in ids))
        assert sorted(one.check for one in found) == sorted(ids)
        places = {one.key: place for place, one in enumerate(found)}
        assert all(places[cause] < places[one.key] for one in found for cause in one.caused_by)


class TestWithheld:
    def test_no_vacuum_and_no_autovacuum_tuning_while_a_session_holds_the_horizon(self) -> None:
        seen = observed()
        found = linked(
            seen,
            held(),
            finding("dead-tuples", remedies=(vacuum("Vacuum it"),)),
            finding("autovacuum-settings", remedies=(threshold(),)),
        )
        assert found[HORIZON].remedies
        assert not found["dead-tuples"].remedies
        assert not found["autovacuum-settings"].remedies
        assert found["dead-tuples"].why == (
            "Because. Comes after the end of session 41 (vacuum-horizon-held), without which no vacuum removes a row: Vacuum it."
        )

    def test_another_queue_may_be_vacuumed(self) -> None:
        found = linked(observed(), held(), finding("dead-tuples", queue="public.mails", remedies=(vacuum(),)))
        assert found["dead-tuples"].remedies == (vacuum(),)

    def test_no_index_while_its_building_would_wait_for_a_snapshot(self) -> None:
        one = finding("claim-scans-consumed-rows", remedies=(index(),))
        found = linked(observed(), held(), one)["claim-scans-consumed-rows"]
        assert not found.remedies
        assert "the building of an index would wait: Give the claim an index." in found.why

    def test_a_writer_without_snapshot_holds_an_index_up_only_on_its_own_tables(self) -> None:
        one = finding("claim-scans-consumed-rows", remedies=(index(),))
        elsewhere = observed(snapshot=False, locks=(waits(41, relation=77),))
        here = observed(snapshot=False, locks=(waits(41),))
        assert linked(elsewhere, held(), one)["claim-scans-consumed-rows"].remedies
        assert not linked(here, held(), one)["claim-scans-consumed-rows"].remedies

    def test_a_slot_holds_no_index_up(self) -> None:
        slot = replace(held(), pids=())
        one = finding("claim-scans-consumed-rows", remedies=(index(),))
        assert linked(observed(sessions=()), slot, one)["claim-scans-consumed-rows"].remedies

    def test_the_holders_own_remedies_stay(self) -> None:
        setting = remedy.change_setting(
            name="idle_in_transaction_session_timeout",
            value="60s",
            settings=(),
            title="Limit it",
            expect="",
            risk="",
        )
        holder = replace(held(), remedies=(*held().remedies, setting))
        assert linked(observed(), holder)[HORIZON].remedies == holder.remedies

    def test_what_takes_a_lock_waits_for_the_line_to_go(self) -> None:
        line = finding("lock-queue", "critical", pids=(7,))
        seen = observed(sessions=(), locks=(waits(7, mode="AccessExclusiveLock"),))
        found = linked(seen, line, finding("autovacuum-settings", remedies=(threshold(),)))
        assert not found["autovacuum-settings"].remedies
        assert "behind whose lock it would wait" in found["autovacuum-settings"].why
        quiet = linked(observed(sessions=()), line, finding("autovacuum-settings", remedies=(threshold(),)))
        assert quiet["autovacuum-settings"].remedies

    def test_one_vacuum_serves_cause_and_effect_whatever_its_options(self) -> None:
        seen = observed(sessions=())
        found = linked(
            seen,
            finding("dead-tuples", remedies=(vacuum(options="(TRUNCATE false)"),)),
            finding("claim-scans-dead-rows", remedies=(vacuum("Again", options="(VERBOSE)"),)),
        )
        assert found["dead-tuples"].remedies
        assert not found["claim-scans-dead-rows"].remedies
        assert found["claim-scans-dead-rows"].why.endswith("Done with the remedy of dead-tuples: Again.")

    def test_bulk_deletes_would_only_make_more_dead_rows(self) -> None:
        delete = remedy.statement(
            sql=("DELETE FROM public.jobs WHERE id < 10;",), title="Delete them", expect="", risk=""
        )
        found = linked(observed(), held(), finding("finished-jobs-kept", remedies=(delete,)))
        assert not found["finished-jobs-kept"].remedies

    @pytest.mark.parametrize("title", ["\x1b[31mred", "a" * 500])
    def test_names_in_titles_are_cut_short(self, title: str) -> None:
        found = linked(observed(), held(), finding("dead-tuples", remedies=(vacuum(title),)))
        assert len(found["dead-tuples"].why) < 300

    def test_findings_without_remedies_stay_as_they_are(self) -> None:
        plain = (held(), finding("dead-tuples"))
        assert withhold(observed(), plain) == plain

"""Plans read aloud: what the sentences say for recorded plans of 14 to 18, and how they are written down."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pgqdoctor import cli
from pgqdoctor.cli import HEALTHY, run
from pgqdoctor.explaining import ExplainedPlan, Explanation, explain
from pgqdoctor.observation import Observation, PlanProbe
from pgqdoctor.queue import GENERIC, build_queues
from pgqdoctor.render.explain import render_json, render_text
from tests.checks.build import CLAIM, observation, probe

PLANS = Path(__file__).parent.parent.parent / "fixtures" / "plans"
VERSIONS = (14, 15, 16, 17, 18)


def node(kind: str = "Seq Scan", /, **more: Any) -> dict[str, Any]:
    return {
        "Node Type": kind,
        "Relation Name": "jobs",
        "Alias": "jobs",
        "Total Cost": 900.0,
        "Plan Rows": 10,
        **more,
    }


def measured(rows: float = 1, buffers: int = 100, **more: Any) -> dict[str, Any]:
    return {
        "Actual Rows": rows,
        "Actual Loops": 1,
        "Shared Hit Blocks": buffers,
        "Shared Read Blocks": 0,
        **more,
    }


def limited(*children: dict[str, Any], **more: Any) -> str:
    return json.dumps(
        [
            {
                "Plan": {
                    "Node Type": "Limit",
                    "Total Cost": 900.0,
                    "Plan Rows": 1,
                    **more,
                    "Plans": list(children),
                }
            }
        ]
    )


def seen(*probes: PlanProbe) -> Observation:
    return observation(probes=(probe(plans=probes),))


def custom(document: str | None, mode: str = "select", **more: Any) -> PlanProbe:
    return PlanProbe(
        mode=mode, sql="SELECT 1", document=document, statement=CLAIM, parameters={"$2": "'queued'"}, **more
    )


def generic(document: str, **more: Any) -> PlanProbe:
    return PlanProbe(
        mode=GENERIC, sql="SELECT 1 FROM jobs WHERE state = $1", document=document, statement=CLAIM, **more
    )


def plan_of(*probes: PlanProbe) -> ExplainedPlan:
    return explain(seen(*probes)).queues[0].plans[-1]


def says(*probes: PlanProbe) -> str:
    return "\n".join(plan_of(*probes).says)


INDEXED = node("Index Scan", **{"Index Name": "jobs_ready_idx", "Total Cost": 8.0})


class TestMeaning:
    @pytest.mark.parametrize(
        ("rows", "sentence"),
        [
            (0, "No job was found, and looking for one read 100 buffers of 8 kB."),
            (1, "Finding one job reads 100 buffers of 8 kB."),
            (20, "Finding 20 jobs reads 100 buffers of 8 kB, 5 for each."),
        ],
    )
    def test_cost_of_a_job(self, rows: int, sentence: str) -> None:
        document = limited({**INDEXED, **measured(rows)}, **measured(rows))
        assert says(custom(document)).splitlines()[0] == sentence

    def test_a_plan_that_was_not_executed_tells_its_cost(self) -> None:
        assert says(custom(limited(node()), "plan")).startswith(
            "Not executed: the planner expects a cost of 900"
        )

    def test_rows_read_in_vain(self) -> None:
        document = limited(
            {**node(Filter="(state = 'queued'::text)", **{"Rows Removed by Filter": 9999}), **measured()},
            **measured(),
        )
        assert "9,999 rows were read and refused, by (state = 'queued'::text)." in says(custom(document))

    def test_a_filter_under_a_lock_that_removed_nothing(self) -> None:
        scan = {
            **INDEXED,
            "Filter": "(state = 'queued'::text)",
            "Rows Removed by Filter": 0,
            **measured(buffers=4),
        }
        lock = {
            "Node Type": "LockRows",
            "Plan Rows": 1,
            "Total Cost": 8.0,
            "Plans": [scan],
            **measured(buffers=5),
        }
        text = says(custom(limited(lock, **measured(buffers=5)), "lock"))
        assert "removed nothing: under a row lock" in text
        assert "refused" not in text

    def test_rows_that_others_hold(self) -> None:
        scan = {**INDEXED, **measured(51)}
        lock = {"Node Type": "LockRows", "Plan Rows": 1, "Total Cost": 8.0, "Plans": [scan], **measured(1)}
        assert "50 rows were found and skipped" in says(custom(limited(lock, **measured()), "lock"))

    def test_a_sort_that_spills(self) -> None:
        sort = {
            "Node Type": "Sort", "Plan Rows": 1, "Total Cost": 9.0, "Sort Key": ["run_at", "id"], "Sort Method": "external merge",
            "Sort Space Used": 4000, "Sort Space Type": "Disk", "Plans": [{**node(), **measured(5000)}], **measured(),
        }  # fmt: skip
        assert "5,000 rows are sorted on disk by run_at, id to find the first" in says(
            custom(limited(sort, **measured()))
        )

    def test_a_limit_that_was_executed_again(self) -> None:
        assert "The LIMIT was executed 3 times" in says(
            custom(limited({**node(), **measured()}, **{**measured(), "Actual Loops": 3}))
        )

    def test_an_estimate_far_off(self) -> None:
        document = json.dumps([{"Plan": {**node(**{"Plan Rows": 3}), **measured(9000)}}])
        assert "expected 3 rows from the scan and got 9,000" in says(custom(document))

    def test_dead_index_entries(self) -> None:
        document = limited(
            {**INDEXED, "Index Searches": 1, **measured(buffers=5017)}, **measured(buffers=5017)
        )
        text = says(custom(document))
        assert "led to no visible row" in text and "VACUUM" in text

    def test_a_sound_claim_is_told_in_two_sentences(self) -> None:
        plan = plan_of(custom(limited({**INDEXED, **measured(buffers=4)}, **measured(buffers=4))))
        assert plan.says == (
            "Finding one job reads 4 buffers of 8 kB.",
            "Index jobs_ready_idx leads to the job in the claim's order; nothing is sorted.",
        )
        assert plan.index is None

    @pytest.mark.parametrize("version", VERSIONS)
    @pytest.mark.parametrize("name", sorted({path.name.split("_", 1)[1] for path in PLANS.glob("*.json")}))
    def test_every_recorded_plan_can_be_told(self, version: int, name: str) -> None:
        path = PLANS / f"{version}_{name}"
        document = path.read_text()
        explanation = explain(seen(custom(document)))
        (plan,) = explanation.queues[0].plans
        assert render_text(explanation, color=False, width=80)
        if plan.facts is not None:
            assert plan.tree and plan.says


class TestTheIndexThatWouldServe:
    def without_index(self, *probes: PlanProbe) -> Explanation:
        made = seen(*probes)
        kept = tuple(row for row in made.catalog.indexes if row.name != "jobs_ready_idx")
        return explain(replace(made, catalog=replace(made.catalog, indexes=kept)))

    def test_is_named(self) -> None:
        document = limited(
            {**node(Filter="(state = 'queued'::text)", **{"Rows Removed by Filter": 9999}), **measured()},
            **measured(),
        )
        (plan,) = self.without_index(custom(document)).queues[0].plans
        assert (
            plan.index
            == "CREATE INDEX CONCURRENTLY jobs_ready_idx ON public.jobs (run_at, id) WHERE state = 'queued';"
        )
        assert "With the one below a claim reads about 2 buffers" in plan.says[-1]

    def test_is_not_where_it_is_there_already(self) -> None:
        document = limited(
            {**node(Filter="(state = 'queued'::text)", **{"Rows Removed by Filter": 9999}), **measured()},
            **measured(),
        )
        assert plan_of(custom(document)).index is None

    def test_is_not_where_the_claim_is_cheap(self) -> None:
        document = limited(
            {**node(Filter="x", **{"Rows Removed by Filter": 3}), **measured(buffers=1)},
            **measured(buffers=1),
        )
        (plan,) = self.without_index(custom(document)).queues[0].plans
        assert plan.index is None


class TestGenericPlans:
    OURS = custom(limited({**INDEXED, **measured()}, **{**measured(), "Total Cost": 0.35}))

    def test_the_same_plan(self) -> None:
        assert "is the one with the values filled in" in says(
            self.OURS, generic(limited(INDEXED, **{"Total Cost": 0.4}), bound=True)
        )

    def test_a_dearer_one_is_not_chosen(self) -> None:
        text = says(self.OURS, generic(limited(node()), bound=True))
        assert (
            "would use Seq Scan without an index, where with the values filled in it uses Index Scan on index jobs_ready_idx"
            in text
        )
        assert "Prepared statements are spared it, since its cost is 900" in text
        assert "pg_stat_statements" not in text

    def test_one_that_looks_no_dearer_is(self) -> None:
        text = says(self.OURS, generic(limited(node(), **{"Total Cost": 5.0}), bound=True))
        assert "from its sixth execution on" in text

    def test_a_normalised_text_is_told_with_care(self) -> None:
        assert "may be a constant in the application's own text" in says(self.OURS, generic(limited(node())))

    def test_it_is_never_taken_for_the_claim_s_plan(self) -> None:
        (queue,) = build_queues(seen(generic(limited(node())), self.OURS))
        assert queue.plan is not None and queue.plan.probe is self.OURS
        assert queue.generic_plan is not None and queue.generic_plan.probe.mode == GENERIC
        (alone,) = build_queues(seen(generic(limited(node()))))
        assert alone.plan is None


class TestWriting:
    def test_text(self) -> None:
        document = limited({**INDEXED, **measured(buffers=4)}, **measured(buffers=4))
        text = render_text(explain(seen(custom(document))), color=False, width=100)
        for words in (
            "public.jobs, about 1,000 rows",
            "locks the row it finds and skips those that other workers hold (SKIP LOCKED)",
            "FOR UPDATE SKIP LOCKED",
            "its SELECT executed, without the row lock, with $2 = 'queued'",
            "Index Scan using jobs_ready_idx on jobs: 4 buffers, 1 row",
            "- Finding one job reads 4 buffers of 8 kB.",
        ):
            assert words in " ".join(text.split()), words

    def test_why_there_is_no_plan(self) -> None:
        text = render_text(explain(seen(custom(None, error="it is locked"))), color=False, width=100)
        assert "it is locked" in text
        nothing = render_text(explain(observation()), color=False, width=100)
        assert "No plan: no plan was asked for." in nothing

    def test_json(self) -> None:
        found = json.loads(
            render_json(explain(seen(custom(limited({**INDEXED, **measured()}, **measured())))))
        )
        assert found["schema"] == "pgqdoctor.explain/1"
        (plan,) = found["queues"][0]["plans"]
        assert plan["facts"]["buffers"] == 100
        assert [line["depth"] for line in plan["tree"]] == [0, 1]
        assert plan["parameters"] == {"$2": "'queued'"}

    def test_names_cannot_reach_the_terminal(self) -> None:
        evil = node("Index Scan", **{"Index Name": "a\x1b[2Jb\nc", "Filter": "x\x1b]0;t\x07"})
        hostile = replace(
            custom(limited({**evil, **measured()}, **measured())),
            error="e\x1b[31m\nf",
            parameters={"$1": "'\x1b[5m'"},
        )
        text = render_text(explain(seen(hostile)), color=False, width=100)
        assert "\x1b" not in text and "\x07" not in text

    def test_command(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "seen").write_text("")
        monkeypatch.setattr(
            cli, "_recorded", lambda *asked: seen(custom(limited({**INDEXED, **measured()}, **measured())))
        )
        assert run(["explain", "--from", "seen"]) == HEALTHY
        assert "Finding one job reads" in capsys.readouterr().out
        assert run(["explain", "--from", "seen", "--format", "json"]) == HEALTHY
        assert json.loads(capsys.readouterr().out)["queues"][0]["name"] == "public.jobs"

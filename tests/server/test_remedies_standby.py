"""commit-waits-standby, live: the finding, its remedies, and that it is gone afterwards."""

from __future__ import annotations

import threading
import time

import psycopg

from pgqdoctor.collect import ObserveOptions, observe
from pgqdoctor.engine import diagnose
from pgqdoctor.lab.server import ScratchServer
from pgqdoctor.report import ReportedFinding
from tests.server.attempts_queue import CLAIM, SETUP


def found(dsn: str) -> list[ReportedFinding]:
    report = diagnose(observe(dsn, ObserveOptions(window_seconds=1.0)))
    return [one for one in report.findings if one.check == "commit-waits-standby"]


def test_a_standby_that_is_gone_and_going_on_without_it() -> None:
    with ScratchServer(synchronous_commit=True) as server:
        dsn = server.create_database("app")
        with psycopg.connect(dsn, autocommit=True) as admin:
            admin.execute(SETUP.encode())
            admin.execute("ALTER SYSTEM SET synchronous_standby_names = 'gone'")
            admin.execute("SELECT pg_reload_conf()")
            time.sleep(0.5)

            def work() -> None:
                with psycopg.connect(dsn, autocommit=True, application_name="worker") as worker:
                    worker.execute(CLAIM.encode())

            thread = threading.Thread(target=work)
            thread.start()
            time.sleep(2.0)
            (finding,) = found(dsn)
            assert finding.title.startswith("1 commit waits for a synchronous standby, for ")
            look, without = finding.remedies
            assert admin.execute(look.sql[0].encode()).fetchall() == [("gone", None, None, None)]
            for statement in without.sql:
                admin.execute(statement.encode())
            thread.join(10.0)
            assert not thread.is_alive(), "the commit has returned"
            assert found(dsn) == []
            for statement in without.undo:
                admin.execute(statement.encode())
            time.sleep(0.5)
            assert admin.execute("SHOW synchronous_standby_names").fetchone() == ("gone",), (
                "the undo restores it"
            )

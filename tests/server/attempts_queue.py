"""A sound queue of three hundred jobs with an attempts column, and its claim: what several live tests set up."""

from __future__ import annotations

SETUP = """
CREATE TABLE jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, status text NOT NULL DEFAULT 'queued',
                   run_at timestamptz NOT NULL DEFAULT now(), attempts int NOT NULL DEFAULT 0);
CREATE INDEX jobs_queued_idx ON jobs (run_at, id) WHERE status = 'queued';
INSERT INTO jobs (status) SELECT 'queued' FROM generate_series(1, 300);
ANALYZE jobs;
"""
CLAIM = (
    "UPDATE jobs SET status = 'running', attempts = attempts + 1 WHERE id = (SELECT id FROM jobs WHERE status = 'queued' "
    "AND run_at <= now() ORDER BY run_at, id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id"
)

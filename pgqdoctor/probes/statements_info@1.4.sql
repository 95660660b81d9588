-- Until 1.9 the extension does not tell what it dropped, nor when it was reset.
SELECT NULL::bigint AS evictions,
       NULL::float8 AS reset_s,
       current_setting('pg_stat_statements.max')::int AS most,
       current_setting('pg_stat_statements.track') AS track

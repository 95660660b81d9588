-- reset_s may be younger than the postmaster: a crash loses the entries.
SELECT i.dealloc AS evictions,
       extract(epoch FROM clock_timestamp() - i.stats_reset)::float8 AS reset_s,
       current_setting('pg_stat_statements.max')::int AS most,
       current_setting('pg_stat_statements.track') AS track
  FROM {schema}.pg_stat_statements_info() i

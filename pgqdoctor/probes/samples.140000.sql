-- A lazy VACUUM shows no progress before it has its table's lock, and its parallel workers never do.
SELECT a.pid,
       a.state,
       a.wait_event_type AS wait_type,
       a.wait_event,
       age(a.backend_xid) AS xid_age,
       age(a.backend_xmin) AS xmin_age,
       extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS xact_age_s,
       extract(epoch FROM clock_timestamp() - a.query_start)::float8 AS query_age_s,
       extract(epoch FROM clock_timestamp() - a.state_change)::float8 AS state_age_s,
       left(a.query, 8192) AS query,
       a.query_id,
       (EXISTS (SELECT 1 FROM pg_stat_progress_vacuum v WHERE v.pid IN (a.pid, a.leader_pid))
        OR coalesce(a.wait_event_type = 'Lock' AND a.query ~* '^\s*(autovacuum: )?vacuum\M' AND a.query !~* '\mfull\M', false)) AS vacuuming,
       coalesce(a.application_name, '') AS application,
       extract(epoch FROM clock_timestamp())::float8 AS at
  FROM pg_stat_activity a
 WHERE a.datname = current_database()
   AND a.pid <> pg_backend_pid()
   AND NOT (a.application_name = 'pgqdoctor' AND a.backend_xid IS NULL
            AND coalesce(clock_timestamp() - a.xact_start < interval '1 minute', true))
   AND (a.state IS DISTINCT FROM 'idle' OR a.backend_xid IS NOT NULL OR a.backend_xmin IS NOT NULL)
 LIMIT 1000

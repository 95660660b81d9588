-- Idle sessions that hold neither a transaction id nor a snapshot cannot matter and stay out.
-- A lazy VACUUM shows no progress before it has its table's lock, and its parallel workers never do.
SELECT a.pid,
       a.datname::text AS database,
       a.usename::text AS role,
       coalesce(a.application_name, '') AS application,
       a.backend_type,
       a.state,
       a.wait_event_type AS wait_type,
       a.wait_event,
       a.backend_xid::text::bigint AS xid,
       age(a.backend_xid) AS xid_age,
       a.backend_xmin::text::bigint AS xmin,
       age(a.backend_xmin) AS xmin_age,
       extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS xact_age_s,
       extract(epoch FROM clock_timestamp() - a.query_start)::float8 AS query_age_s,
       extract(epoch FROM clock_timestamp() - a.state_change)::float8 AS state_age_s,
       a.query_id,
       left(a.query, 8192) AS query,
       (EXISTS (SELECT 1 FROM pg_stat_progress_vacuum v WHERE v.pid IN (a.pid, a.leader_pid))
        OR coalesce(a.wait_event_type = 'Lock' AND a.query ~* '^\s*(autovacuum: )?vacuum\M' AND a.query !~* '\mfull\M', false)) AS vacuuming,
       extract(epoch FROM clock_timestamp() - a.backend_start)::float8 AS backend_start_s,
       x.subxact_count AS subtransactions,
       x.subxact_overflowed
  FROM pg_stat_activity a
  LEFT JOIN (SELECT pg_stat_get_backend_pid(b) AS pid, s.subxact_count, s.subxact_overflowed
               FROM pg_stat_get_backend_idset() AS b, pg_stat_get_backend_subxact(b) AS s
              WHERE s.subxact_count > 0) x ON x.pid = a.pid
 WHERE a.pid <> pg_backend_pid()
   AND NOT (a.application_name = 'pgqdoctor' AND a.backend_xid IS NULL
            AND coalesce(clock_timestamp() - a.xact_start < interval '1 minute', true))
   AND (a.state IS DISTINCT FROM 'idle' OR a.backend_xid IS NOT NULL OR a.backend_xmin IS NOT NULL)
   AND (a.backend_xid IS NOT NULL OR a.backend_xmin IS NOT NULL OR a.datname IS NOT NULL)
 ORDER BY a.pid

-- Idle sessions that hold neither a transaction id nor a snapshot cannot matter and stay out. Subtransactions are
-- counted from pg_locks: before version 16 nothing else shows them.
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
       (SELECT greatest(count(*) - 1, 0)::int FROM pg_locks l
         WHERE l.pid = a.pid AND l.locktype = 'transactionid' AND l.granted AND l.mode = 'ExclusiveLock') AS subtransactions,
       NULL::bool AS subxact_overflowed
  FROM pg_stat_activity a
 WHERE a.pid <> pg_backend_pid()
   AND NOT (a.application_name = 'pgqdoctor' AND a.backend_xid IS NULL
            AND coalesce(clock_timestamp() - a.xact_start < interval '1 minute', true))
   AND (a.state IS DISTINCT FROM 'idle' OR a.backend_xid IS NOT NULL OR a.backend_xmin IS NOT NULL)
   AND (a.backend_xid IS NOT NULL OR a.backend_xmin IS NOT NULL OR a.datname IS NOT NULL)
 ORDER BY a.pid

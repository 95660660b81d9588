-- Waiters with their blockers; strong table locks; and what sessions hold on the tables asked for. A poll stays cheap:
-- pg_blocking_pids() is asked for waiters alone, at most a hundred. Predicate locks on the tables asked for are told once for each
-- session, as locks on the table.
WITH every AS MATERIALIZED (
     SELECT l.pid, l.locktype, l.database, l.relation, l.mode, l.granted, l.waitstart, l.classid, l.objid
       FROM pg_locks l
      WHERE l.pid IS DISTINCT FROM pg_backend_pid()
), held AS MATERIALIZED (
     SELECT DISTINCT l.pid, 'relation'::text AS locktype, l.database, l.relation, l.mode, l.granted, l.waitstart,
            NULL::oid AS classid, NULL::oid AS objid
       FROM every l
      WHERE l.mode = 'SIReadLock'
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND l.relation = ANY (%(oids)s::oid[])
      UNION ALL
     SELECT l.pid, l.locktype, l.database, l.relation, l.mode, l.granted, l.waitstart, l.classid, l.objid
       FROM every l
      WHERE l.mode <> 'SIReadLock'
        AND (NOT l.granted
             OR (l.locktype = 'object' AND l.database = 0 AND l.classid = 1262 AND l.objid = 0)
             OR l.locktype = 'advisory'
             OR (l.locktype = 'relation'
                 AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
                 AND (l.mode IN ('ShareUpdateExclusiveLock', 'ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
                      OR l.relation = ANY (%(oids)s::oid[])))))
SELECT h.pid, h.locktype, h.database::bigint AS database, h.relation::bigint AS relation, h.mode, h.granted,
       extract(epoch FROM clock_timestamp() - h.waitstart)::float8 AS wait_age_s,
       h.classid::bigint AS classid, h.objid::bigint AS objid,
       CASE WHEN h.granted THEN '{}'::int[] ELSE coalesce(b.pids, '{}') END AS blocked_by
  FROM held h
  LEFT JOIN (SELECT w.pid, pg_blocking_pids(w.pid) AS pids
               FROM (SELECT DISTINCT pid FROM held WHERE NOT granted ORDER BY pid LIMIT 100) w) b ON b.pid = h.pid
 ORDER BY h.granted, h.waitstart, h.pid
 LIMIT 2000

-- pg_get_multixact_members() is open to every role. Ids that were just taken may not be written yet, so the
-- newest few are left alone by the caller; an id already truncated raises an error, which costs this sample alone.
SELECT i::bigint AS id,
       array_agg(m.mode ORDER BY m.mode) AS modes,
       coalesce(array_agg(DISTINCT l.pid) FILTER (WHERE l.pid IS NOT NULL), '{}') AS pids
  FROM unnest(%(ids)s::bigint[]) AS i
 CROSS JOIN LATERAL pg_get_multixact_members((i %% 4294967296)::text::xid) AS m
  LEFT JOIN (SELECT k.transactionid::text AS xid, k.pid FROM pg_locks k
              WHERE k.locktype = 'transactionid' AND k.granted) l ON l.xid = m.xid::text
 GROUP BY i

-- pg_get_multixact_members() is open to every role. Ids that were just taken may not be written yet, so the
-- newest few are left alone by the caller; an id already truncated raises an error, which costs this sample alone.
-- A transaction that first locks and then updates a row others hold stands in it twice: its strongest mode is kept, so
-- that modes that conflict belong to different transaction ids.
SELECT s.id::bigint AS id,
       array_agg(s.mode ORDER BY s.mode) AS modes,
       coalesce(array_agg(DISTINCT l.pid) FILTER (WHERE l.pid IS NOT NULL), '{}') AS pids
  FROM (SELECT DISTINCT ON (i, m.xid::text) i AS id, m.xid::text AS xid, m.mode
          FROM unnest(%(ids)s::bigint[]) AS i
         CROSS JOIN LATERAL pg_get_multixact_members((i %% 4294967296)::text::xid) AS m
         ORDER BY i, m.xid::text, array_position(ARRAY['upd', 'nokeyupd', 'forupd', 'fornokeyupd', 'sh', 'keysh'], m.mode)) s
  LEFT JOIN (SELECT k.transactionid::text AS xid, k.pid FROM pg_locks k
              WHERE k.locktype = 'transactionid' AND k.granted) l ON l.xid = s.xid
 GROUP BY s.id

-- Tables whose shape may be a queue's, the most written first, read from catalogs alone: no relation is opened.
-- A table named as a framework names its own and one with a partial index are candidates in any case. Of the others the
-- most written are looked at by their columns: a name as queues have for state, lease, attempts or time to run, and either
-- an index led by it or a second such column (one that tells when a job was claimed is state and lease at once). A status
-- alone makes no queue, and of thousands of tables the cost must not grow with each.
WITH shown AS MATERIALIZED (
     SELECT c.oid,
            c.relname ~ %(signatures)s
            OR c.oid IN (SELECT i.indrelid FROM pg_index i WHERE i.indpred IS NOT NULL) AS sure,
            CASE WHEN c.relkind = 'p' THEN
                 (SELECT sum(pg_stat_get_tuples_inserted(h.inhrelid) + pg_stat_get_tuples_updated(h.inhrelid)
                             + pg_stat_get_tuples_deleted(h.inhrelid))::bigint
                    FROM pg_inherits h WHERE h.inhparent = c.oid)
                 ELSE pg_stat_get_tuples_inserted(c.oid) + pg_stat_get_tuples_updated(c.oid) + pg_stat_get_tuples_deleted(c.oid)
            END AS written
       FROM pg_class c
       JOIN pg_namespace n ON n.oid = c.relnamespace
      WHERE c.relkind IN ('r', 'p')
        AND c.relpersistence <> 't'
        AND NOT c.relispartition
        AND n.nspname <> 'information_schema'
        AND n.nspname NOT LIKE 'pg\_%%'),
looked_at AS MATERIALIZED (
     SELECT s.oid, s.sure, s.written
       FROM shown s
      ORDER BY s.sure, s.written DESC NULLS LAST, s.oid
      LIMIT %(looked_at)s),
told AS MATERIALIZED (
     SELECT l.oid, l.written
       FROM looked_at l
      WHERE NOT l.sure
        AND (SELECT true FROM pg_attribute a
              WHERE a.attrelid = l.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attname ~* %(telling)s
              LIMIT 1)),
shaped AS (
     SELECT t.oid, t.written
       FROM told t,
            LATERAL (SELECT sum(CASE WHEN a.attname ~* %(claimed)s THEN 2 ELSE 1 END) AS signs, array_agg(a.attnum) AS columns
                       FROM pg_attribute a
                      WHERE a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
                        AND (a.atttypid = 'bool'::regtype OR a.attname ~* %(columns)s
                             OR a.atttypid IN (SELECT y.oid FROM pg_type y WHERE y.typtype = 'e'))) f
      WHERE f.signs >= 2
         OR EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = t.oid AND i.indkey[0] = ANY (f.columns)))
SELECT f.oid::bigint AS oid
  FROM (SELECT oid, written FROM shown WHERE sure UNION ALL SELECT oid, written FROM shaped) f
 ORDER BY f.written DESC NULLS LAST, f.oid
 LIMIT %(limit)s

-- Tables whose shape may be a queue's, read from pg_attribute and pg_index alone: no relation is opened.
-- A table named as a framework names its own, a partial index, or a column named as queues name their state or
-- their lease, makes a candidate.
SELECT c.oid::bigint AS oid
  FROM pg_class c
  JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind IN ('r', 'p')
   AND c.relpersistence <> 't'
   AND NOT c.relispartition
   AND n.nspname <> 'information_schema'
   AND n.nspname NOT LIKE 'pg\_%%'
   AND (c.relname ~ ANY (%(signatures)s::text[])
        OR EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = c.oid AND i.indpred IS NOT NULL)
        OR EXISTS (SELECT 1 FROM pg_attribute a
                    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
                      AND a.attname ~* '(stat(e|us)|attempt|locked|lease|claimed|picked|run_?at|scheduled|heartbeat|visible)'))
 ORDER BY pg_stat_get_tuples_inserted(c.oid) + pg_stat_get_tuples_updated(c.oid) + pg_stat_get_tuples_deleted(c.oid) DESC
 LIMIT %(limit)s

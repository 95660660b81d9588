-- pg_get_expr and pg_get_indexdef open the table, so they are asked only for tables that no exclusive lock guards.
SELECT i.indexrelid::bigint AS oid,
       i.indrelid::bigint AS "table",
       n.nspname::text AS schema,
       c.relname::text AS name,
       m.amname::text AS method,
       i.indisunique AS "unique",
       i.indisprimary AS "primary",
       (SELECT k.conname::text FROM pg_constraint k
         WHERE k.conindid = i.indexrelid AND k.contype IN ('p', 'u', 'x') LIMIT 1) AS "constraint",
       i.indisvalid AS valid,
       (SELECT coalesce(array_agg(a ORDER BY o), '{}') FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS u(a, o)
         WHERE o <= i.indnkeyatts)::int[] AS key_columns,
       (SELECT coalesce(array_agg(a ORDER BY o), '{}') FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS u(a, o)
         WHERE o > i.indnkeyatts)::int[] AS included_columns,
       i.indpred IS NOT NULL AS has_predicate,
       i.indexprs IS NOT NULL AS has_expressions,
       CASE WHEN i.indpred IS NULL OR i.indrelid = ANY (%(locked)s::oid[]) THEN NULL
            ELSE pg_get_expr(i.indpred, i.indrelid) END AS predicate,
       CASE WHEN i.indrelid = ANY (%(locked)s::oid[]) THEN NULL
            ELSE pg_get_indexdef(i.indexrelid) END AS definition,
       CASE WHEN i.indexprs IS NULL OR i.indrelid = ANY (%(locked)s::oid[]) THEN NULL
            ELSE pg_get_expr(i.indexprs, i.indrelid) END AS expressions,
       c.relpages AS pages,
       c.reltuples::float8 AS rows,
       i.indisreplident AS replica_identity,
       ARRAY(SELECT (o & 1) = 1 FROM unnest(i.indoption::int2[]) AS o)::bool[] AS descending
  FROM pg_index i
  JOIN pg_class c ON c.oid = i.indexrelid
  JOIN pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_am m ON m.oid = c.relam
 WHERE i.indrelid = ANY (%(oids)s::oid[])
 ORDER BY i.indrelid, i.indexrelid

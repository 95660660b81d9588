SELECT k.conname::text AS name,
       k.conrelid::bigint AS child,
       k.confrelid::bigint AS parent,
       (quote_ident(cn.nspname) || '.' || quote_ident(cc.relname)) AS child_name,
       (quote_ident(pn.nspname) || '.' || quote_ident(pc.relname)) AS parent_name,
       ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY AS u(n, o)
               JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.n ORDER BY o) AS child_columns,
       ARRAY(SELECT a.attname::text FROM unnest(k.confkey) WITH ORDINALITY AS u(n, o)
               JOIN pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = u.n ORDER BY o) AS parent_columns,
       ARRAY(SELECT format_type(a.atttypid, NULL) FROM unnest(k.conkey) WITH ORDINALITY AS u(n, o)
               JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.n ORDER BY o) AS child_types,
       k.confdeltype::text AS on_delete,
       EXISTS (SELECT 1 FROM pg_index i
                WHERE i.indrelid = k.conrelid AND i.indisvalid AND i.indpred IS NULL
                  AND (SELECT array_agg(x ORDER BY x) FROM unnest((i.indkey::int2[])[0:cardinality(k.conkey) - 1]) AS x)
                      = (SELECT array_agg(x ORDER BY x) FROM unnest(k.conkey) AS x)) AS indexed,
       pc.reltuples::float8 AS parent_rows,
       cc.reltuples::float8 AS child_rows,
       pg_get_constraintdef(k.oid) AS definition
  FROM pg_constraint k
  JOIN pg_class cc ON cc.oid = k.conrelid
  JOIN pg_namespace cn ON cn.oid = cc.relnamespace
  JOIN pg_class pc ON pc.oid = k.confrelid
  JOIN pg_namespace pn ON pn.oid = pc.relnamespace
 WHERE k.contype = 'f'
   AND k.conparentid = 0
   AND (k.conrelid = ANY (%(oids)s::oid[]) OR k.confrelid = ANY (%(oids)s::oid[]))
 ORDER BY k.oid

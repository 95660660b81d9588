-- pg_get_expr opens the table, so it is asked only for tables that no exclusive lock guards.
SELECT a.attrelid::bigint AS "table",
       a.attnum::int AS number,
       a.attname::text AS name,
       format_type(a.atttypid, NULL) AS type_name,
       t.typcategory::text AS type_category,
       a.attnotnull AS not_null,
       a.attgenerated <> '' AS generated,
       CASE WHEN t.typtype = 'e'
            THEN ARRAY(SELECT e.enumlabel::text FROM pg_enum e WHERE e.enumtypid = t.oid ORDER BY e.enumsortorder)
            ELSE '{}' END AS enum_labels,
       s.avg_width AS average_width,
       s.null_frac::float8 AS null_fraction,
       s.n_distinct::float8 AS "distinct",
       s.correlation::float8 AS correlation,
       coalesce(s.most_common_vals::text::text[], '{}') AS common_values,
       coalesce(s.most_common_freqs::float8[], '{}') AS common_fractions,
       nullif(a.attstattarget, -1)::int AS statistics_target,
       coalesce(s.inherited, false) AS inherited_statistics,
       CASE WHEN a.attrelid = ANY (%(locked)s::oid[]) THEN NULL
            ELSE (SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef d
                   WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum) END AS default_expression
  FROM pg_attribute a
  JOIN pg_class c ON c.oid = a.attrelid
  JOIN pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_type t ON t.oid = a.atttypid
  LEFT JOIN LATERAL (
        SELECT p.* FROM pg_stats p
         WHERE p.schemaname = n.nspname AND p.tablename = c.relname AND p.attname = a.attname
         ORDER BY p.inherited = (c.relkind = 'p') DESC
         LIMIT 1) s ON true
 WHERE a.attrelid = ANY (%(oids)s::oid[])
   AND a.attnum > 0
   AND NOT a.attisdropped
 ORDER BY a.attrelid, a.attnum

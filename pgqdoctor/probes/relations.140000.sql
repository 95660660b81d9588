-- What a name means that is no table: its kind, and the tables it reads (views of views included), serves or counts for.
WITH RECURSIVE named AS (
    SELECT c.oid, n.nspname, c.relname, c.relkind, c.relpersistence
      FROM pg_class c
      JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE n.nspname || '.' || c.relname = %(name)s
        OR quote_ident(n.nspname) || '.' || quote_ident(c.relname) = %(name)s
        OR c.relname = %(name)s
        OR quote_ident(c.relname) = %(name)s
     ORDER BY pg_table_is_visible(c.oid) DESC, n.nspname
     LIMIT 1
), about (oid) AS (
    SELECT oid FROM named
    UNION
    SELECT other.oid
      FROM about a
      JOIN pg_class k ON k.oid = a.oid
      CROSS JOIN LATERAL (
           SELECT i.indrelid AS oid FROM pg_index i WHERE i.indexrelid = k.oid
           UNION ALL
           SELECT d.refobjid FROM pg_depend d
            WHERE d.classid = 'pg_class'::regclass AND d.objid = k.oid AND d.refclassid = 'pg_class'::regclass
              AND k.relkind = 'S' AND d.deptype IN ('a', 'i')
           UNION ALL
           SELECT d.refobjid FROM pg_rewrite r
             JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
                             AND d.refclassid = 'pg_class'::regclass AND d.refobjid <> k.oid
            WHERE r.ev_class = k.oid AND k.relkind IN ('v', 'm')
           UNION ALL
           SELECT o.oid FROM pg_class o WHERE o.reltoastrelid = k.oid AND k.relkind = 't'
           ) other
     WHERE k.relkind IN ('v', 'm', 'S', 'i', 'I', 't')
)
SELECT named.nspname::text AS schema,
       named.relname::text AS name,
       named.relkind::text AS kind,
       named.relpersistence::text AS persistence,
       coalesce((SELECT array_agg(DISTINCT quote_ident(n.nspname) || '.' || quote_ident(t.relname))
                   FROM about
                   JOIN pg_class t ON t.oid = about.oid AND t.relkind IN ('r', 'p')
                   JOIN pg_namespace n ON n.oid = t.relnamespace), '{}') AS tables
  FROM named

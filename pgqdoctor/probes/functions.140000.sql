-- Bodies that lock rows, catch exceptions or notify; extension members and huge bodies stay out.
-- BEGIN ATOMIC leaves no source but a parsed tree. pg_get_function_sqlbody opens the tables that the tree names, so it is asked
-- only where no exclusive lock guards one of them (pg_depend has them all), and only for trees that lock, update or delete rows.
SELECT p.oid::bigint AS oid,
       n.nspname::text AS schema,
       p.proname::text AS name,
       l.lanname::text AS language,
       CASE WHEN p.prosqlbody IS NULL THEN p.prosrc ELSE pg_get_function_sqlbody(p.oid) END AS body,
       pg_get_function_arguments(p.oid) AS arguments,
       format_type(p.prorettype, NULL) AS returns
  FROM pg_proc p
  JOIN pg_namespace n ON n.oid = p.pronamespace
  JOIN pg_language l ON l.oid = p.prolang
 WHERE l.lanname IN ('sql', 'plpgsql')
   AND n.nspname <> 'information_schema'
   AND n.nspname NOT LIKE 'pg\_%%'
   AND CASE WHEN p.prosqlbody IS NULL
            THEN length(p.prosrc) BETWEEN 20 AND 50000
             AND p.prosrc ~* '(skip\s+locked|for\s+(no\s+key\s+)?update|\mupdate\M|\mdelete\M|pg_notify|\mnotify\M|\mexception\M|for\s+(key\s+)?share)'
            ELSE %(trees)s::boolean
             AND pg_column_size(p.prosqlbody) < 50000
             AND p.prosqlbody::text ~ '(ROWMARKCLAUSE|:commandType [245] )'
             AND NOT EXISTS (SELECT 1 FROM pg_depend d
                              WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid
                                AND d.refclassid = 'pg_class'::regclass AND d.refobjid = ANY (%(locked)s::oid[]))
       END
   AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
 ORDER BY p.oid
 LIMIT %(limit)s

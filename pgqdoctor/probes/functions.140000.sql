-- Bodies that lock rows, catch exceptions or notify; extension members and huge bodies stay out.
SELECT p.oid::bigint AS oid,
       n.nspname::text AS schema,
       p.proname::text AS name,
       l.lanname::text AS language,
       p.prosrc AS body,
       pg_get_function_arguments(p.oid) AS arguments,
       format_type(p.prorettype, NULL) AS returns
  FROM pg_proc p
  JOIN pg_namespace n ON n.oid = p.pronamespace
  JOIN pg_language l ON l.oid = p.prolang
 WHERE l.lanname IN ('sql', 'plpgsql')
   AND n.nspname <> 'information_schema'
   AND n.nspname NOT LIKE 'pg\_%%'
   AND length(p.prosrc) BETWEEN 20 AND 50000
   AND p.prosrc ~* '(skip\s+locked|for\s+(no\s+key\s+)?update|\mupdate\M|\mdelete\M|pg_notify|\mnotify\M|\mexception\M|for\s+(key\s+)?share)'
   AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
 ORDER BY p.oid
 LIMIT %(limit)s

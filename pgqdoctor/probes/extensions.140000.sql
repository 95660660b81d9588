SELECT e.extname::text AS name, e.extversion AS version, n.nspname::text AS schema
  FROM pg_extension e
  JOIN pg_namespace n ON n.oid = e.extnamespace
 ORDER BY e.extname

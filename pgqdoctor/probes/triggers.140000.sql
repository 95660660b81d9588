SELECT t.tgrelid::bigint AS "table",
       t.tgname::text AS name,
       n.nspname::text AS function_schema,
       p.proname::text AS function_name,
       p.oid::bigint AS function_oid,
       t.tgenabled <> 'D' AS enabled
  FROM pg_trigger t
  JOIN pg_proc p ON p.oid = t.tgfoid
  JOIN pg_namespace n ON n.oid = p.pronamespace
 WHERE NOT t.tgisinternal
   AND t.tgrelid = ANY (%(oids)s::oid[])
 ORDER BY t.oid

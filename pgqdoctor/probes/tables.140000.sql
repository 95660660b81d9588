-- A right is looked up per table, which reads the catalogs once more for each, so it is only where it must be: a superuser
-- may read all, and a table without grants is its owner's.
SELECT c.oid::bigint AS oid,
       n.nspname::text AS schema,
       c.relname::text AS name,
       c.relkind::text AS kind,
       c.relpersistence::text AS persistence,
       c.reltuples::float8 AS rows,
       c.relpages AS pages,
       coalesce(c.reloptions, '{}') || coalesce(
           (SELECT array_agg('toast.' || o) FROM unnest(t.reloptions) AS o), '{}') AS options,
       CASE WHEN c.relispartition THEN (SELECT i.inhparent::bigint FROM pg_inherits i
                                         WHERE i.inhrelid = c.oid AND i.inhseqno = 1) END AS parent,
       nullif(c.reltoastrelid, 0)::bigint AS toast,
       CASE WHEN c.relkind = 'r' THEN age(c.relfrozenxid) END AS frozen_xid_age,
       CASE WHEN c.relkind = 'r' THEN mxid_age(c.relminmxid) END AS min_multixact_age,
       c.relrowsecurity AS row_security,
       false AS visible,
       CASE WHEN (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = current_user) THEN true
            WHEN c.relacl IS NULL AND NOT pg_has_role(current_user, 'pg_read_all_data', 'USAGE')
                 THEN pg_has_role(current_user, c.relowner, 'USAGE')
            ELSE has_table_privilege(c.oid, 'SELECT') END AS may_select,
       pg_get_userbyid(c.relowner)::text AS owner,
       c.relpersistence = 'u' AS unlogged
  FROM pg_class c
  JOIN pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN pg_class t ON t.oid = c.reltoastrelid AND t.reloptions IS NOT NULL
 WHERE c.relkind IN ('r', 'p')
   AND c.relpersistence <> 't'
   AND n.nspname <> 'information_schema'
   AND n.nspname NOT LIKE 'pg\_%'

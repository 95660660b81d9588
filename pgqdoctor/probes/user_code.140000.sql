-- Code that a user could make the doctor run with a statement: what its names may resolve to, and what planning its
-- tables evaluates. Members of extensions that a superuser owns are trusted, whoever installed the extension; all else
-- from the first oid after initdb on is a user's.
WITH RECURSIVE named AS (
     SELECT c.oid
       FROM pg_class c
       JOIN pg_namespace n ON n.oid = c.relnamespace
      WHERE n.nspname = ANY (%(schemas)s::text[])
        AND c.relname = ANY (%(relations)s::text[])
     UNION
     SELECT i.inhrelid FROM pg_inherits i JOIN named t ON t.oid = i.inhparent),
relations AS MATERIALIZED (
     SELECT c.oid, c.relkind, c.relhasrules, row_security_active(c.oid) AS secured, quote_ident(n.nspname) || '.' || quote_ident(c.relname) AS name
       FROM named t JOIN pg_class c ON c.oid = t.oid JOIN pg_namespace n ON n.oid = c.relnamespace),
parts AS MATERIALIZED (
     SELECT 'pg_class'::regclass AS classid, r.oid AS objid, r.name, 'definition' AS kind FROM relations r
     UNION ALL
     SELECT 'pg_class'::regclass, i.indexrelid, r.name, 'index' FROM relations r JOIN pg_index i ON i.indrelid = r.oid
     UNION ALL
     SELECT 'pg_constraint'::regclass, k.oid, r.name, 'constraint' FROM relations r JOIN pg_constraint k ON k.conrelid = r.oid
     UNION ALL
     SELECT 'pg_statistic_ext'::regclass, s.oid, r.name, 'statistics' FROM relations r JOIN pg_statistic_ext s ON s.stxrelid = r.oid
     UNION ALL
     SELECT 'pg_attrdef'::regclass, d.oid, r.name, 'default' FROM relations r JOIN pg_attrdef d ON d.adrelid = r.oid
     UNION ALL
     SELECT 'pg_constraint'::regclass, k.oid, quote_ident(n.nspname) || '.' || quote_ident(t.typname), 'domain'
       FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace JOIN pg_constraint k ON k.contypid = t.oid
      WHERE t.typname = ANY (%(types)s::text[]) AND n.nspname = ANY (%(schemas)s::text[])),
trusted AS MATERIALIZED (
     SELECT d.classid, d.objid
       FROM pg_depend d
       LEFT JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
       LEFT JOIN pg_operator o ON d.classid = 'pg_operator'::regclass AND o.oid = d.objid
       JOIN pg_roles r ON r.oid = coalesce(p.proowner, o.oprowner)
      WHERE d.deptype = 'e' AND d.classid IN ('pg_proc'::regclass, 'pg_operator'::regclass) AND r.rolsuper)
SELECT CASE WHEN r.relkind = 'v' THEN 'view' WHEN r.relkind = 'f' THEN 'foreign table' ELSE 'row security' END AS kind, r.name
  FROM relations r
 WHERE r.relkind IN ('v', 'f') OR r.secured
UNION ALL
SELECT 'rule', r.name FROM relations r WHERE r.relkind IN ('r', 'p') AND r.relhasrules
UNION ALL
SELECT 'trigger', r.name
  FROM relations r
 WHERE EXISTS (SELECT 1 FROM pg_trigger t WHERE t.tgrelid = r.oid AND NOT t.tgisinternal AND t.tgenabled <> 'D')
UNION ALL
SELECT DISTINCT p.kind, p.name
  FROM parts p
  JOIN pg_depend d ON d.classid = p.classid AND d.objid = p.objid
 WHERE d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass)
   AND d.refobjid >= 16384::oid
   AND NOT EXISTS (SELECT 1 FROM trusted t WHERE t.classid = d.refclassid AND t.objid = d.refobjid)
UNION ALL
SELECT 'domain', quote_ident(n.nspname) || '.' || quote_ident(t.typname)
  FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace JOIN pg_type b ON b.oid = t.typbasetype
 WHERE t.typname = ANY (%(types)s::text[]) AND n.nspname = ANY (%(schemas)s::text[]) AND b.typtype = 'd'
UNION ALL
SELECT 'operator', quote_ident(n.nspname) || '.' || o.oprname
  FROM pg_operator o
  JOIN pg_namespace n ON n.oid = o.oprnamespace
 WHERE o.oid >= 16384::oid
   AND n.nspname = ANY (%(schemas)s::text[])
   AND NOT EXISTS (SELECT 1 FROM trusted t WHERE t.classid = 'pg_operator'::regclass AND t.objid = o.oid)
UNION ALL
SELECT 'cast', format_type(c.castsource, NULL) || ' to ' || format_type(c.casttarget, NULL)
  FROM pg_cast c
 WHERE c.castfunc >= 16384::oid
   AND NOT EXISTS (SELECT 1 FROM trusted t WHERE t.classid = 'pg_proc'::regclass AND t.objid = c.castfunc)
UNION ALL
SELECT CASE WHEN p.provolatile = 'v' AND l.lanname <> 'sql' THEN 'volatile function' ELSE 'function' END,
       quote_ident(n.nspname) || '.' || quote_ident(p.proname)
  FROM pg_proc p
  JOIN pg_namespace n ON n.oid = p.pronamespace
  JOIN pg_language l ON l.oid = p.prolang
 WHERE (n.nspname = ANY (%(schemas)s::text[]) OR n.nspname = 'pg_catalog')
   AND (p.proname = ANY (%(others)s::text[])
        OR p.oid >= 16384::oid
           AND NOT EXISTS (SELECT 1 FROM trusted t WHERE t.classid = 'pg_proc'::regclass AND t.objid = p.oid)
           AND (p.proname = ANY (%(harmless)s::text[])
                OR p.proname = ANY (%(attributes)s::text[])
                   AND EXISTS (SELECT 1 FROM pg_type a WHERE a.oid = p.proargtypes[0] AND a.typtype IN ('c', 'p'))))
 ORDER BY 1, 2

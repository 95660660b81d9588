-- NOTIFY with a literal payload makes one entry per payload: those texts are counted elsewhere, not read.
SELECT concat_ws('/', s.queryid, s.userid, s.toplevel::int) AS key,
       s.queryid AS query_id,
       pg_get_userbyid(s.userid)::text AS role,
       s.toplevel AS toplevel,
       left(s.query, 100000) AS text
  FROM {schema}.pg_stat_statements s
 WHERE s.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND s.query !~* '^\s*notify\s'
 ORDER BY s.calls DESC
 LIMIT %(limit)s

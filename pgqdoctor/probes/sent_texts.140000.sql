-- The statements of some query ids as sessions sent them last, idle sessions included: pg_stat_statements has taken their constants away.
SELECT DISTINCT left(a.query, 8192) AS query
  FROM pg_stat_activity a
 WHERE a.query_id = ANY (%(ids)s::bigint[])
   AND a.datname = current_database()
   AND a.pid <> pg_backend_pid()
   AND a.query <> ''
 LIMIT %(limit)s

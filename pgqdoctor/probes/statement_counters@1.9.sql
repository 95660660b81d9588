SELECT concat_ws('/', s.queryid, s.userid, s.toplevel::int) AS key,
       s.calls,
       s.rows,
       s.total_exec_time AS total_ms,
       s.shared_blks_hit AS blocks_hit,
       s.shared_blks_read AS blocks_read,
       s.shared_blks_dirtied AS blocks_dirtied,
       s.temp_blks_written AS temp_blocks_written,
       s.wal_bytes::bigint AS wal_bytes,
       s.wal_fpi AS wal_page_images
  FROM {schema}.pg_stat_statements(false) s
 WHERE s.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND s.queryid = ANY (%(ids)s::bigint[])

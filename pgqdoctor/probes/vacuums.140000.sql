SELECT v.pid,
       v.datname::text AS database,
       v.relid::bigint AS relation,
       v.phase,
       v.heap_blks_total AS heap_blocks,
       v.heap_blks_scanned AS heap_blocks_scanned,
       v.index_vacuum_count,
       (SELECT a.backend_type = 'autovacuum worker' FROM pg_stat_activity a WHERE a.pid = v.pid) AS autovacuum
  FROM pg_stat_progress_vacuum v
 ORDER BY v.pid

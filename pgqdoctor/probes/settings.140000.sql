-- reset_val: what a new session would have. The doctor's own SET LOCAL shows in "setting".
SELECT name, reset_val AS setting, unit,
       CASE WHEN reset_val IS NOT DISTINCT FROM boot_val THEN 'default' ELSE source END AS source
  FROM pg_settings
 WHERE name LIKE 'autovacuum%'
    OR name LIKE 'vacuum%'
    OR name LIKE '%\_buffers'
    OR name LIKE '%timeout'
    OR name LIKE 'track%'
    OR name LIKE 'pg\_stat\_statements.%'
    OR name IN ('max_connections', 'superuser_reserved_connections', 'reserved_connections', 'block_size',
                'default_transaction_isolation', 'max_prepared_transactions', 'hot_standby_feedback',
                'plan_cache_mode', 'default_statistics_target', 'work_mem', 'max_locks_per_transaction',
                'compute_query_id', 'synchronous_commit', 'deadlock_timeout', 'old_snapshot_threshold',
                'maintenance_work_mem', 'random_page_cost', 'server_encoding', 'wal_level',
                'synchronous_standby_names')
 ORDER BY name

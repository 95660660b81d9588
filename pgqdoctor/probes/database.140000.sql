SELECT s.xact_commit AS commits,
       s.xact_rollback AS rollbacks,
       s.deadlocks,
       s.temp_bytes,
       s.blks_hit AS blocks_hit,
       s.blks_read AS blocks_read,
       d.datminmxid::text::bigint + mxid_age(d.datminmxid) AS next_multixact,
       mxid_age(d.datminmxid) AS multixact_age,
       pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next_xid,
       age(d.datfrozenxid) AS xid_age,
       pg_notification_queue_usage() AS notify_usage,
       extract(epoch FROM clock_timestamp() - s.stats_reset)::float8 AS stats_reset_s,
       (SELECT coalesce(sum(numbackends), 0)::bigint FROM pg_stat_database) AS backends,
       extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::float8 AS started_s,
       extract(epoch FROM clock_timestamp())::float8 AS at
  FROM pg_database d
  JOIN pg_stat_database s ON s.datid = d.oid
 WHERE d.datname = current_database()

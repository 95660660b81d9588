SELECT current_setting('server_version') AS version,
       current_setting('server_version_num')::int AS version_num,
       current_database()::text AS database,
       current_user::text AS role,
       (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) AS superuser,
       ARRAY(SELECT rolname::text FROM pg_roles
              WHERE rolname IN ('pg_monitor', 'pg_read_all_stats', 'pg_read_all_settings', 'pg_stat_scan_tables',
                                'pg_read_all_data', 'pg_signal_backend', 'pg_use_reserved_connections')
                AND pg_has_role(current_user, oid, 'USAGE')
              ORDER BY rolname) AS granted_roles,
       pg_is_in_recovery() AS in_recovery,
       to_char(pg_postmaster_start_time() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS started_at,
       pg_backend_pid() AS backend_pid,
       current_setting('pg_stat_statements.track', true) AS statements_track

SELECT pid,
       coalesce(application_name, '') AS application,
       host(client_addr) AS client,
       state,
       backend_xmin::text::bigint AS xmin,
       age(backend_xmin) AS xmin_age
  FROM pg_stat_replication
 ORDER BY pid

SELECT slot_name::text AS name,
       slot_type,
       database::text AS database,
       active,
       active_pid,
       xmin::text::bigint AS xmin,
       age(xmin) AS xmin_age,
       age(catalog_xmin) AS catalog_xmin_age
  FROM pg_replication_slots
 ORDER BY slot_name

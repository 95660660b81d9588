SELECT o::bigint AS oid,
       pg_stat_get_numscans(o) AS scans,
       pg_stat_get_tuples_returned(o) AS entries_read,
       pg_stat_get_tuples_fetched(o) AS rows_fetched
  FROM unnest(%(oids)s::oid[]) AS o

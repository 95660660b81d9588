SELECT gid,
       transaction::text::bigint AS xid,
       age(transaction) AS xid_age,
       extract(epoch FROM clock_timestamp() - prepared)::float8 AS prepared_age_s,
       owner::text AS owner,
       database::text AS database
  FROM pg_prepared_xacts
 ORDER BY age(transaction) DESC

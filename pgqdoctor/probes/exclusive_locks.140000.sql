-- Tables that an exclusive lock guards or is about to: nothing that opens them may be asked.
SELECT DISTINCT l.relation::bigint AS oid
  FROM pg_locks l
 WHERE l.locktype = 'relation'
   AND l.mode = 'AccessExclusiveLock'
   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())

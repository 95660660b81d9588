SELECT CASE name WHEN 'MultiXactOffset' THEN 'multixact_offset'
                 WHEN 'MultiXactMember' THEN 'multixact_member'
                 WHEN 'Subtrans' THEN 'subtransaction'
                 WHEN 'Xact' THEN 'transaction'
                 WHEN 'Notify' THEN 'notify'
                 WHEN 'Serial' THEN 'serializable'
                 WHEN 'CommitTs' THEN 'commit_timestamp'
                 ELSE name END AS name,
       blks_zeroed AS blocks_zeroed,
       blks_hit AS blocks_hit,
       blks_read AS blocks_read,
       blks_written AS blocks_written
  FROM pg_stat_slru

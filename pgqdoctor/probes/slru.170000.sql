SELECT name,
       blks_zeroed AS blocks_zeroed,
       blks_hit AS blocks_hit,
       blks_read AS blocks_read,
       blks_written AS blocks_written
  FROM pg_stat_slru

-- The sequences that number the queues' rows: of identity and serial columns, and of any default that calls nextval().
-- pg_sequence_last_value() reads one page of the sequence; it is asked only where the role may read it.
SELECT u.sequence::bigint AS sequence,
       u.relation::bigint AS "table",
       a.attname::text AS "column",
       n.nspname::text AS schema,
       c.relname::text AS name,
       format_type(a.atttypid, NULL) AS column_type,
       CASE WHEN has_sequence_privilege(u.sequence, 'SELECT, USAGE')
                 AND NOT (c.relpersistence = 'u' AND pg_is_in_recovery())
            THEN pg_sequence_last_value(u.sequence) END AS last_value,
       least(s.seqmax, CASE a.atttypid WHEN 'int2'::regtype THEN 32767
                                       WHEN 'int4'::regtype THEN 2147483647
                                       ELSE s.seqmax END) AS last_possible,
       s.seqincrement AS increment,
       s.seqcycle AS cycles,
       a.attidentity <> '' AS identity,
       has_sequence_privilege(u.sequence, 'SELECT, USAGE') AS may_read
  FROM (SELECT d.objid AS sequence, d.refobjid AS relation, d.refobjsubid AS number
          FROM pg_depend d
         WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass
           AND d.deptype IN ('a', 'i') AND d.refobjid = ANY (%(oids)s::oid[]) AND d.refobjsubid > 0
        UNION
        SELECT d.refobjid, f.adrelid, f.adnum
          FROM pg_attrdef f
          JOIN pg_depend d ON d.classid = 'pg_attrdef'::regclass AND d.objid = f.oid
                          AND d.refclassid = 'pg_class'::regclass
         WHERE f.adrelid = ANY (%(oids)s::oid[])) u
  JOIN pg_sequence s ON s.seqrelid = u.sequence
  JOIN pg_class c ON c.oid = u.sequence
  JOIN pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_attribute a ON a.attrelid = u.relation AND a.attnum = u.number
 ORDER BY u.relation, u.number, u.sequence

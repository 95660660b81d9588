"""Functions of pg_catalog that the doctor may execute while it measures a claim.

A function stands here if executing it, in a read-only transaction that is rolled back, changes nothing
outside that transaction and takes no lock that another session could wait for. Left out on purpose, though
pg_catalog has them:

- what writes past a rollback or signals others: nextval, setval, pg_notify, set_config, pg_terminate_backend,
  pg_cancel_backend, pg_reload_conf, pg_switch_wal, pg_logical_emit_message, pg_stat_reset...;
- what locks: every advisory-lock function;
- what waits: pg_sleep and its kin;
- what takes a transaction id: txid_current, pg_current_xact_id;
- what reads or writes files, large objects or other servers: pg_read_file, lo_*, dblink;
- what runs SQL given as text, or opens relations by name: query_to_xml, table_to_xml, pg_relation_size.

An unqualified name is taken for pg_catalog's, which is searched first unless search_path says otherwise; a
user's function can win only with argument types that fit better. Functions of other schemas are never taken
for harmless.
"""

from __future__ import annotations

from pgqdoctor.sqltext import word_set

_CLOCK = """
now clock_timestamp statement_timestamp transaction_timestamp timeofday age date_part date_trunc date_bin
extract make_date make_interval make_time make_timestamp make_timestamptz to_timestamp to_char to_date
timezone isfinite justify_days justify_hours justify_interval overlaps date_add date_subtract
"""
_NUMBERS = """
abs ceil ceiling floor round trunc sign sqrt cbrt power pow exp ln log log10 mod div gcd lcm greatest least
random width_bucket int2 int4 int8 float4 float8 numeric bit bool min_scale scale trim_scale
"""
_TEXT = """
lower upper initcap length char_length character_length octet_length bit_length substring substr left right
btrim ltrim rtrim trim lpad rpad replace translate reverse repeat split_part strpos position overlay concat
concat_ws format md5 sha224 sha256 sha384 sha512 encode decode ascii chr to_hex to_number starts_with
string_to_array regexp_match regexp_matches regexp_replace regexp_split_to_array regexp_split_to_table
regexp_like regexp_count regexp_instr regexp_substr quote_ident quote_literal quote_nullable text varchar
bpchar char name normalize is_normalized hashtext hashtextextended hashint4 hashint8 hashint4extended
hashint8extended convert_to convert_from get_byte set_byte get_bit set_bit like_escape uuid_send
"""
_ARRAYS = """
array_append array_cat array_dims array_fill array_length array_lower array_ndims array_position
array_positions array_prepend array_remove array_replace array_to_string array_upper cardinality trim_array
unnest generate_series generate_subscripts array_sample array_shuffle array_sort array_reverse
"""
_JSON = """
json_array_elements json_array_elements_text json_array_length json_build_array json_build_object json_each
json_each_text json_extract_path json_extract_path_text json_object json_object_keys json_populate_record
json_populate_recordset json_strip_nulls json_to_record json_to_recordset json_typeof jsonb_array_elements
jsonb_array_elements_text jsonb_array_length jsonb_build_array jsonb_build_object jsonb_each jsonb_each_text
jsonb_exists jsonb_exists_all jsonb_exists_any jsonb_extract_path jsonb_extract_path_text jsonb_insert
jsonb_object jsonb_object_keys jsonb_path_exists jsonb_path_match jsonb_path_query jsonb_path_query_array
jsonb_path_query_first jsonb_populate_record jsonb_populate_recordset jsonb_pretty jsonb_set jsonb_set_lax
jsonb_strip_nulls jsonb_to_record jsonb_to_recordset jsonb_typeof row_to_json to_json to_jsonb array_to_json
"""
_AGGREGATES = """
count sum avg min max bool_and bool_or every array_agg string_agg json_agg jsonb_agg json_object_agg
jsonb_object_agg bit_and bit_or bit_xor stddev stddev_pop stddev_samp variance var_pop var_samp mode
percentile_cont percentile_disc any_value row_number rank dense_rank percent_rank cume_dist ntile lag lead
first_value last_value nth_value
"""
_RANGES = """
int4range int8range numrange tsrange tstzrange daterange lower_inc upper_inc lower_inf upper_inf isempty
range_merge
"""
_OTHER = """
coalesce nullif num_nulls num_nonnulls current_setting current_database current_schema current_schemas
current_user session_user pg_backend_pid pg_typeof enum_first enum_last enum_range gen_random_uuid uuidv4
uuidv7 uuid_extract_timestamp uuid_extract_version txid_current_if_assigned pg_current_xact_id_if_assigned
version inet_client_addr inet_server_addr host masklen network to_tsvector to_tsquery plainto_tsquery
websearch_to_tsquery ts_rank
"""

HARMLESS_FUNCTIONS: frozenset[str] = frozenset(
    name
    for group in (_CLOCK, _NUMBERS, _TEXT, _ARRAYS, _JSON, _AGGREGATES, _RANGES, _OTHER)
    for name in group.split()
)

HARMLESS_OPERATORS: frozenset[str] = word_set(
    """
    = <> != < <= > >= + - * / % ^ |/ ||/ @ & | # ~ << >> || ~* !~ !~* ~~ !~~ ~~* !~~* ^@ ~=~ ~<~ ~<=~
    ~>~ ~>=~ @> <@ && -|- -> ->> #> #>> #- ? ?| ?& @? @@ &< &> <<= >>= <-> isnull notnull
    """
)
"""Operators of pg_catalog. All of them are immutable or stable; an operator of the same name on a user's own
type may run that type's function, which PostgreSQL gives no way to see from the text."""

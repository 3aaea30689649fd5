"""Which functions a SELECT list may call and still be given more columns.

An aggregate makes one row of many, so a column beside it is an error. Nothing in the text tells an aggregate of the
user's from another function; so only functions that are known to be none are let through, and a SELECT with others
stays untouched.
"""

from __future__ import annotations

_AGGREGATE_WORDS = """
    array_agg avg bit_and bit_or bool_and bool_or count cume_dist dense_rank every first_value group_concat json_agg
    json_object_agg jsonb_agg jsonb_object_agg lag last_value lead max min mode nth_value ntile percent_rank
    percentile_cont percentile_disc rank row_number stddev stddev_pop stddev_samp string_agg sum total var_pop
    var_samp variance
"""
AGGREGATE = frozenset(_AGGREGATE_WORDS.split())

_SCALAR_WORDS = """
    abs age all and any array array_append array_cat array_length array_lower array_ndims array_position
    array_positions array_prepend array_remove array_replace array_to_json array_to_string array_upper as ascii
    between bigint bit bit_length bool boolean bpchar btrim cardinality case cast ceil ceiling changes char
    char_length character character_length chr clock_timestamp coalesce col_description concat concat_ws convert_from
    convert_to current_database current_date current_schema current_setting current_time current_timestamp
    current_user currval date date_bin date_part date_trunc datetime decimal decode degrees div double else encode end
    exists exp extract factorial float floor format format_type gen_random_uuid generate_series glob greatest hex host
    ifnull iif ilike in inet initcap instr int4 int8 integer interval is isfinite json json_array json_array_elements
    json_array_length json_build_array json_build_object json_extract json_extract_path json_extract_path_text
    json_object json_quote json_type json_typeof json_valid jsonb jsonb_array_elements jsonb_array_length
    jsonb_build_array jsonb_build_object jsonb_each jsonb_extract_path jsonb_extract_path_text jsonb_insert
    jsonb_object_keys jsonb_path_exists jsonb_path_query_array jsonb_path_query_first jsonb_pretty jsonb_set
    jsonb_strip_nulls jsonb_typeof julianday justify_days justify_hours last_insert_rowid lastval least left length
    like ln localtime localtimestamp log log10 lower lpad ltrim make_date make_interval make_time make_timestamp
    make_timestamptz md5 mod nchar nextval not now null nullif numeric octet_length on or overlay pg_advisory_lock
    pg_advisory_xact_lock pg_backend_pid pg_column_size pg_current_xact_id pg_get_expr pg_sleep pg_typeof pi position
    power precision printf quote quote_ident quote_literal quote_nullable radians random real regexp_count
    regexp_instr regexp_like regexp_match regexp_replace regexp_split_to_array regexp_substr repeat replace reverse
    right round row row_to_json rpad rtrim select set_config setval sha224 sha256 sha384 sha512 sign similar smallint
    split_part sqrt starts_with statement_timestamp strftime string_to_array strpos substr substring text then time
    timeofday timestamp timestamptz to_char to_date to_hex to_json to_jsonb to_number to_regclass to_timestamp
    to_tsquery to_tsvector total_changes transaction_timestamp translate trim trunc ts_headline ts_rank txid_current
    typeof unicode unistr unnest upper uuid values varchar varying version when width_bucket zeroblob
"""
SCALAR = frozenset(_SCALAR_WORDS.split())
"""Functions of PostgreSQL and SQLite, and words that may stand before a parenthesis without being one."""

UNDONE = frozenset({"set_config"})
"""Functions among these whose effect a ROLLBACK would undo."""

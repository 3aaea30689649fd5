"""A pytest plugin for psycopg's own tests: all connections are recorded."""

from mussurana.collector.instrument import instrument

instrument()  # settings come from the environment

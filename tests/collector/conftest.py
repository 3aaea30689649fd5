"""What all tests of the collector can ask for."""

from tests.collector.postgres import database, postgres

__all__ = ["database", "postgres"]

"""What goes into application servers: records what they did to their database.

    from mussurana.collector import connect, coverage, instrument
    connection = connect("postgresql://...")  # or instrument(), for code that one cannot touch
    coverage()                                # what could be seen of the application's statements, and what not

Drivers, and what it takes to rewrite SQL, are loaded when the first connection is made.
"""

from mussurana.collector.instrument import adopt_connection, connect, instrument, uninstrument
from mussurana.collector.recorder import coverage
from mussurana.collector.settings import Settings

__version__ = "0.1.0"

__all__ = ["Settings", "adopt_connection", "connect", "coverage", "instrument", "uninstrument"]

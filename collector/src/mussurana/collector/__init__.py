"""What goes into application servers: records what they did to their database. So far only its name is here."""

__version__ = "0.1.0"

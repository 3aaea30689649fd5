"""Commands about a running daemon, a module each; `cli.py` has those about files. Light imports at the top only."""

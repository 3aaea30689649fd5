"""How fast the checker is, and how much memory it takes: `make bench`, or `python -m bench --help`.

docs/performance.md says what is measured and has the figures. Needs Linux, for the memory and for pinning to a core.
"""

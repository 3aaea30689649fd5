"""What the collector needs. In a checkout the wire package is taken from beside it: pip needs but one path."""

from pathlib import Path

from setuptools import Extension, setup

WIRE = Path(__file__).resolve().parent.parent / "proto"

setup(
    # Light on purpose: this goes into application servers. Nothing of the verifier, no numpy.
    install_requires=[
        f"mussurana-wire @ {WIRE.as_uri()}" if WIRE.is_dir() else "mussurana-wire",
        "grpcio>=1.60",
        "sqlglot>=26",
        "xxhash>=3",
    ],
    # Optional: without a compiler the same is done in Python, which takes longer.
    ext_modules=[
        Extension("mussurana.collector._columns", ["src/mussurana/collector/_columns.c"], optional=True),
    ],
)

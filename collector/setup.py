"""What the collector needs. In a checkout the wire package is taken from beside it: pip needs but one path."""

from pathlib import Path

from setuptools import setup

WIRE = Path(__file__).resolve().parent.parent / "proto"

setup(
    # Light on purpose: this goes into application servers. Nothing of the verifier, no numpy, no compiler.
    install_requires=[
        f"mussurana-wire @ {WIRE.as_uri()}" if WIRE.is_dir() else "mussurana-wire",
        "grpcio>=1.60",
        "sqlglot>=26",
        "xxhash>=3",
    ]
)

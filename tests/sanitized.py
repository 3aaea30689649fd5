"""Run a module with a C extension that was compiled elsewhere, for sanitizers: see `make sanitize`.

python -m tests.sanitized out/sanitized/_columns.so pytest tests/collector/recording
"""

from __future__ import annotations

import runpy
import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location

import mussurana.collector

NAME = "mussurana.collector._columns"


def load(path: str) -> None:
    """Have an extension stand for the installed one."""
    assert NAME not in sys.modules, "the installed one was loaded already"
    spec = spec_from_file_location(NAME, path, loader=ExtensionFileLoader(NAME, path))
    assert spec is not None
    assert spec.loader is not None
    sys.modules[NAME] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    mussurana.collector._columns = module


if __name__ == "__main__":
    load(sys.argv[1])
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)

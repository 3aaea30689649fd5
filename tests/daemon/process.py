"""A daemon with the fake machine, in a process of its own: python -m tests.daemon.process --data DIRECTORY ..."""

from __future__ import annotations

import os
import sys

from mussurana.verifier.commands.serve import flags_from
from mussurana.verifier.daemon.configured import load
from mussurana.verifier.daemon.service import serve
from tests.daemon.fake_machine import FakeMachine

if __name__ == "__main__":
    serve(lambda: load(None, os.environ, flags_from(sys.argv[1:])), FakeMachine, lambda fragment: None)

"""`python -m mussurana.verifier`: the same as `mussurana`."""

import sys

from mussurana.verifier.cli import main

sys.exit(main())

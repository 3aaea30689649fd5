"""`python -m mussurana.verifier`: the same as `mussurana`."""

import sys

from mussurana.verifier.cli import main

if __name__ == "__main__":
    sys.exit(main())

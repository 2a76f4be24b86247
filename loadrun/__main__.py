"""`python -m loadrun`."""

from __future__ import annotations

import sys

from loadrun.cli import main

if __name__ == "__main__":
    sys.exit(main())

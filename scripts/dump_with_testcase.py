"""MegEngine's `dump_with_testcase_mge.py` under its old kind of name: see `dump-with-testcase`.

    python scripts/dump_with_testcase.py net.mge -o net.test.mge -d 'data:cat.png'

Exit codes: 0 done, 2 bad usage or file, 3 unsupported, 130 interrupted.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mgeserial.cli.dump_with_testcase import main

if __name__ == "__main__":
    sys.exit(main())

"""A folder for each run of the suite: caches of the engines and compiled code lie there.

So no test reads or fills the caches of whoever runs the suite, and what one test has compiled
another one takes, in whichever process of the run it is: entries go by their content.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

# The processes of a run share the processors: none of them needs all.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Processes that pytest-xdist starts find it set, and share the folder of the one that starts them.
FOLDER = "MGE_TESTS_FOLDER"
_OF_THE_RUN = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Make the folder, unless the process that started this one has."""
    if FOLDER not in os.environ:
        folder = tempfile.mkdtemp(prefix="mge-tests-")
        config.stash[_OF_THE_RUN] = os.environ[FOLDER] = folder
    for variable, name in (("LOADRUN_CACHE", "cpu"), ("LOADRUN_CUDA_EMULATED_CACHE", "emulated")):
        os.environ[variable] = str(Path(os.environ[FOLDER]) / name)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the folder in the process that has made it."""
    if (folder := config.stash.get(_OF_THE_RUN, "")) and os.environ.pop(FOLDER, None):
        shutil.rmtree(folder, ignore_errors=True)

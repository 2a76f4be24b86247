"""What importing costs: nothing that a reader of models does not need."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("cv2", "rich", "llvmlite", "cupy", "onnx", "safetensors")


def modules_after(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint()\nprint(*sorted(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "code",
    [
        "import mgeserial",
        "import mgeserial; mgeserial.load; mgeserial.Graph",
        "import mgeserial\nfrom mgeserial.ops import registry\nlist(registry.every())",
        "import mgeserial.cli",
        "import loadrun",
    ],
)
def test_importing_loads_no_heavy_package(code):
    loaded = {name.partition(".")[0] for name in modules_after(code)}
    assert not loaded & set(HEAVY)


def test_mgeserial_never_imports_loadrun():
    code = "import mgeserial.cli.info, mgeserial.cli.check\nfrom mgeserial import *"
    assert not any(m.partition(".")[0] == "loadrun" for m in modules_after(code))


def test_the_package_alone_loads_not_even_numpy():
    assert "numpy" not in modules_after("import mgeserial")
    assert "numpy" not in modules_after("import mgeserial.cli, mgeserial.errors")


@pytest.mark.parametrize("program", ["mgeserial", "loadrun"])
@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_load_no_numpy(program, option):
    code = f"from {program}.cli import main\nmain([{option!r}])"
    assert "numpy" not in modules_after(code)


def test_public_names_are_there():
    import mgeserial

    for name in mgeserial.__all__:
        assert getattr(mgeserial, name) is not None
    assert set(dir(mgeserial)) >= {"load", "iter_graphs", "MgeError", "Model", "Graph"}
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = mgeserial.nothing

"""The graphs whose bytes are kept in `golden/`.

python tests/golden_graphs.py      writes the files anew, after a change that is meant
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(__file__).resolve().parent / "golden"


def files() -> dict[str, bytes]:
    """Bytes by name."""
    import mgeserial

    small, network = _small(), _network()
    return {
        "small.v1.mge": mgeserial.dumps(small, format="v1"),
        "small.v2.mge": mgeserial.dumps(small, format="v2"),
        "small.mgbs.mge": mgeserial.dumps(small, format="mgbs"),
        "small.0_5_1.mge": mgeserial.dumps(
            small, format="mgbs", release="0.5.1", keep_opr_name=False
        ),
        "network.v1.mge": mgeserial.dumps(network, format="v1", keep_var_name=1),
        "network.v2.mge": mgeserial.dumps(network, format="v2", keep_var_name=0),
    }


def _small() -> object:
    from mgeserial.author import GraphBuilder

    b = GraphBuilder()
    x = b.input("x", (1, 2))
    b.output(b.add(x, b.param(np.array([[1, 2]], np.float32), "w"), name="sum"), "y")
    return b.graph()


def _network() -> object:
    from mgeserial.author import GraphBuilder

    b = GraphBuilder()
    x = b.input("data", (1, 3, 8, 8))
    weight = np.arange(4 * 3 * 3 * 3, dtype=np.float32).reshape(4, 3, 3, 3) / 64
    y = b.conv2d(x, weight, np.ones(4, np.float32), stride=2, padding=1)
    y = b.pool2d(b.relu(y), 2)
    b.output(b.linear(b.reshape_to(y, (1, 16)), np.eye(2, 16, dtype=np.float32)), "prob")
    return b.graph()


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    FOLDER.mkdir(exist_ok=True)
    for name, data in files().items():
        (FOLDER / name).write_bytes(data)
        print(name, len(data))

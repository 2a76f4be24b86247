"""Random graphs composed from the operator records, computed by us and by the real MegEngine.

    python scripts/verify/random_graphs.py --oracle ENV --count 300 --json out.json

Each graph is built with GraphBuilder from a seed, saved as v2 (every third as v1), run on the
reference session, and given to MegEngine 1.13.0 (ENV holds it, `../shared/oracle/batch.py` drives
it). A development aid: neither the package nor its continuous integration needs MegEngine.
Tolerance: 1e-4 absolute and relative per float32 output, scaled by the output's largest magnitude,
since sums are done in another order; integers exactly.
"""

from __future__ import annotations

import argparse
import collections
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT)]

import numpy as np  # noqa: E402

import mgeserial  # noqa: E402
from loadrun.session import Session  # noqa: E402
from mgeserial import params as P  # noqa: E402
from mgeserial.author import GraphBuilder  # noqa: E402
from mgeserial.errors import MgeError  # noqa: E402
from mgeserial.ir.graph import Graph, Value  # noqa: E402

E = P.ElemwiseMode
UNARY = (
    E.RELU, E.ABS, E.NEGATE, E.SIGMOID, E.TANH, E.SIN, E.COS, E.FLOOR, E.CEIL, E.ROUND, E.ERF,
    E.FAST_TANH, E.H_SWISH, E.SILU, E.GELU, E.SQUARE, E.SOFTPLUS, E.LOGSIGMOID, E.HSIGMOID,
    E.RELU6, E.SIGN,
)  # fmt: skip
BINARY = (E.ADD, E.SUB, E.MUL, E.MAX_, E.MIN_, E.FUSE_ADD_RELU, E.FUSE_ADD_SIGMOID, E.LT, E.LEQ)
# Reading these back needs MegEngine to keep what the v2 writer stored: it does for all of them.
LIMIT = 40_000


class Composer:
    """Builds one random graph."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.b = GraphBuilder()
        self.values: list[Value] = []
        self.used: collections.Counter[str] = collections.Counter()
        self.steps: tuple[Callable[[], Value | None], ...] = (
            self.unary, self.binary, self.scalar, self.convolution, self.depthwise, self.pooling,
            self.batch_norm, self.reduce, self.softmax, self.reshape, self.transpose, self.concat,
            self.split, self.subtensor, self.matmul, self.argmax, self.resize, self.padding,
            self.cumsum, self.layer_norm, self.deconvolution, self.add_axis, self.broadcast,
            self.power, self.take, self.top_k, self.convert,
        )  # fmt: skip

    def weight(self, *shape: int) -> Any:
        """Small normal numbers."""
        return (self.random.standard_normal(shape) * 0.5).astype(np.float32)

    def pick(self, rank: int | None = None) -> Value | None:
        """A float value so far, of a rank if given."""
        fits = [
            v
            for v in self.values
            if self.b.type_of(v).dtype.name == "Float32"
            and (rank is None or self.b.type_of(v).rank == rank)
        ]
        return fits[self.random.integers(len(fits))] if fits else None

    def graph(self, size: int) -> Graph:
        """Compose about `size` operators; every unused value becomes an output."""
        n, c = int(self.random.integers(1, 3)), int(self.random.choice([1, 3, 4, 8]))
        h, w = (int(self.random.integers(5, 12)) for _ in range(2))
        self.values = [self.b.input("x0", (n, c, h, w)), self.b.input("x1", (n, 6))]
        made = 0
        for _ in range(size * 8):
            step = self.steps[self.random.integers(len(self.steps))]
            try:
                value = step()
            except MgeError:
                continue
            if value is None or math.prod(self.b.shape_of(value)) > LIMIT:
                continue
            self.values.append(value)
            made += 1
            if made == size:
                break
        outputs = [v for v in self.values[2:] if not v.users] or self.values[-1:]
        for i, value in enumerate(outputs):
            self.b.output(value, f"out{i}")
        return self.b.graph()

    # -- one method for each kind of operator; None where no value fits --------------------------

    def unary(self) -> Value | None:
        """Elementwise of one value."""
        x = self.pick()
        mode = UNARY[self.random.integers(len(UNARY))]
        return None if x is None else self.b.elemwise(x, mode=mode)

    def binary(self) -> Value | None:
        """Elementwise of two values that broadcast."""
        x, y = self.pick(), self.pick()
        mode = BINARY[self.random.integers(len(BINARY))]
        return None if x is None or y is None else self.b.elemwise(x, y, mode=mode)

    def scalar(self) -> Value | None:
        """Arithmetic with a number."""
        x = self.pick()
        return None if x is None else self.b.mul(x, float(self.random.uniform(-2, 2)))

    def power(self) -> Value | None:
        """A power by a constant."""
        x = self.pick()
        if x is None:
            return None
        return self.b.pow_c(self.b.relu(x), exp=float(self.random.choice([0.5, 2.0, 3.0])))

    def convolution(self) -> Value | None:
        """Convolution, dense or in groups."""
        x = self.pick(4)
        if x is None:
            return None
        c = self.b.shape_of(x)[1]
        groups = 2 if c % 2 == 0 and self.random.random() < 0.3 else 1
        k, oc = int(self.random.choice([1, 3])), int(self.random.choice([2, 4, 8]))
        return self.b.conv2d(
            x,
            self.weight(oc, c // groups, k, k),
            self.weight(oc),
            stride=int(self.random.integers(1, 3)),
            padding=int(self.random.integers(0, 2)),
            dilation=int(self.random.integers(1, 3)) if k == 3 else 1,
            groups=groups,
        )

    def depthwise(self) -> Value | None:
        """Channel-wise convolution."""
        x = self.pick(4)
        if x is None or self.b.shape_of(x)[1] < 2:
            return None
        c = self.b.shape_of(x)[1]
        return self.b.conv2d(x, self.weight(c, 1, 3, 3), padding=1, groups=c)

    def deconvolution(self) -> Value | None:
        """Transposed convolution."""
        x = self.pick(4)
        if x is None:
            return None
        return self.b.conv_transpose2d(x, self.weight(self.b.shape_of(x)[1], 3, 2, 2), stride=2)

    def pooling(self) -> Value | None:
        """Pooling in each mode."""
        x = self.pick(4)
        if x is None:
            return None
        mode = self.random.choice(["MAX", "AVERAGE", "AVERAGE_COUNT_EXCLUDE_PADDING"])
        return self.b.pool2d(x, 3, stride=2, padding=1, mode=str(mode))

    def batch_norm(self) -> Value | None:
        """Batch norm in inference."""
        x = self.pick(4)
        if x is None:
            return None
        c = self.b.shape_of(x)[1]
        scale, bias, mean = (self.weight(c) for _ in range(3))
        return self.b.batch_norm2d(x, scale, bias, mean, np.abs(self.weight(c)) + 0.5)

    def reduce(self) -> Value | None:
        """Reduction over one axis."""
        x = self.pick()
        if x is None:
            return None
        mode = self.random.choice(["SUM", "MEAN", "MAX", "MIN", "SUM_SQR"])
        return self.b.reduce(x, mode=str(mode), axis=self.axis(x))

    def axis(self, x: Value) -> int:
        """A random axis of a value."""
        return int(self.random.integers(self.b.type_of(x).rank))

    def softmax(self) -> Value | None:
        """Softmax over one axis."""
        x = self.pick()
        return None if x is None else self.b.softmax(x, axis=self.axis(x))

    def layer_norm(self) -> Value | None:
        """Layer norm over the last axis."""
        x = self.pick()
        if x is None or self.b.type_of(x).rank < 2:
            return None
        n = self.b.shape_of(x)[-1]
        return self.b.layer_norm_last(x, self.weight(n), self.weight(n))

    def reshape(self) -> Value | None:
        """Flatten, or split the last axis."""
        x = self.pick()
        if x is None:
            return None
        shape = self.b.shape_of(x)
        return self.b.reshape_to(x, (shape[0], -1) if len(shape) > 2 else (-1, 1, shape[-1]))

    def transpose(self) -> Value | None:
        """A random order of axes."""
        x = self.pick()
        if x is None:
            return None
        order = self.random.permutation(self.b.type_of(x).rank)
        return self.b.transpose(x, [int(i) for i in order])

    def add_axis(self) -> Value | None:
        """A new axis of size 1."""
        x = self.pick()
        if x is None or self.b.type_of(x).rank > 4:
            return None
        item = P.AxisDesc(method=P.AxisDescMethod.ADD_1, axis=self.axis(x))
        return self.b.axis_add_remove(x, desc=(item,))

    def broadcast(self) -> Value | None:
        """Broadcast along a new first axis."""
        x = self.pick(2)
        return None if x is None else self.b.broadcast(x, [2, *self.b.shape_of(x)])

    def concat(self) -> Value | None:
        """A value joined with itself or another of its shape."""
        x = self.pick()
        return None if x is None else self.b.cat([x, self.b.relu(x)], axis=self.axis(x))

    def split(self) -> Value | None:
        """One part of a cut."""
        x = self.pick()
        if x is None:
            return None
        axis = self.axis(x)
        n = self.b.shape_of(x)[axis]
        return None if n < 2 else self.b.split_sizes(x, (1, n - 1), axis=axis)[1]

    def subtensor(self) -> Value | None:
        """A slice with a step."""
        x = self.pick()
        if x is None:
            return None
        axis = self.axis(x)
        n = self.b.shape_of(x)[axis]
        return None if n < 3 else self.b.slice_axis(x, axis, 1, None, 2)

    def take(self) -> Value | None:
        """Rows by index."""
        x = self.pick()
        if x is None:
            return None
        n = self.b.shape_of(x)[0]
        rows = self.random.integers(0, n, size=3).astype(np.int32)
        return self.b.take_rows(x, [int(i) for i in rows])

    def matmul(self) -> Value | None:
        """A product with a weight."""
        x = self.pick(2)
        if x is None:
            return None
        return self.b.linear(x, self.weight(5, self.b.shape_of(x)[1]), self.weight(5))

    def argmax(self) -> Value | None:
        """Index of the largest, as a float."""
        x = self.pick()
        return None if x is None else self.b.cast(self.b.argmax(x, axis=self.axis(x)), "Float32")

    def top_k(self) -> Value | None:
        """The largest two of each row."""
        x = self.pick(2)
        if x is None or self.b.shape_of(x)[1] < 3:
            return None
        return self.b.top_k(x, -2, mode="VALUE_IDX_SORTED")[0]

    def cumsum(self) -> Value | None:
        """Running sums."""
        x = self.pick()
        if x is None:
            return None
        return self.b.cumsum(
            x, axis=self.axis(x), exclusive=False, reverse=bool(self.random.integers(2))
        )

    def resize(self) -> Value | None:
        """Linear resizing."""
        x = self.pick(4)
        if x is None:
            return None
        size = [int(n) for n in self.random.integers(3, 12, size=2)]
        return self.b.resize(x, size, format="NCHW", imode="LINEAR")

    def padding(self) -> Value | None:
        """Zeros or mirrored pixels around."""
        x = self.pick(4)
        if x is None:
            return None
        mode = self.random.choice(["CONSTANT", "REPLICATE"])
        return self.b.padding(
            x, front_offset_dim2=1, back_offset_dim3=2, padding_mode=str(mode), padding_val=0.5
        )

    def convert(self) -> Value | None:
        """To int32 and back: truncation."""
        x = self.pick()
        if x is None:
            return None
        clipped = self.b.minimum(self.b.maximum(x, -1000.0), 1000.0)
        return self.b.cast(self.b.cast(clipped, "Int32"), "Float32")


def differs(ours: Any, theirs: Any) -> str | None:
    """Why two outputs are not equal within the tolerance; None when they are."""
    if ours.shape != theirs.shape:
        return f"shape {ours.shape} against {theirs.shape}"
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    if ours.dtype.kind in "iub":
        return None if np.array_equal(a, b) else "integers differ"
    finite = np.isfinite(b)
    if not np.array_equal(np.isfinite(a), finite):
        return "finite in one only"
    top = float(np.max(np.abs(b[finite]), initial=1.0))
    error = float(np.max(np.abs(a[finite] - b[finite]), initial=0.0))
    return None if error <= 1e-4 * max(top, 1.0) else f"error {error:.3g} of {top:.3g}"


def ask(
    args: argparse.Namespace, folder: Path, jobs: list[str], ours: list[Any], *, naive: bool
) -> tuple[int, dict[str, str]]:
    """Number of answers of MegEngine, and why each that differs does."""
    (folder / "jobs.jsonl").write_text("\n".join(jobs) + "\n", encoding="utf-8")
    batch = args.shared / "oracle" / "batch.py"
    command = [args.oracle / "bin" / "python", batch, folder / "jobs.jsonl", folder / "out"]
    environment = {**os.environ, **({"MGB_USE_MEGDNN_DBG": "2"} if naive else {})}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    failures: dict[str, str] = {}
    for answer in answers:
        k = answer["id"]
        if not answer["ok"]:
            failures[str(k)] = f"MegEngine: {answer['error']}"
            continue
        theirs = np.load(folder / "out" / f"{answer['k']}.npz")
        for key, value in zip(theirs.files, ours[k].values(), strict=True):
            problem = differs(value, theirs[key])
            if problem is not None:
                failures[str(k)] = f"{key}: {problem}"
    return len(answers), failures


def _save_npz(path: Path, arrays: dict[str, Any]) -> None:
    np.savez(path, **arrays)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="random graphs against the real MegEngine")
    parser.add_argument("--oracle", type=Path, required=True, help="environment with MegEngine")
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", default="-")
    args = parser.parse_args()
    types: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours, jobs = [], []
        for k in range(args.count):
            composer = Composer(args.seed + k)
            graph = composer.graph(4 + k % 12)
            types.update(n.op.name for n in graph.nodes)
            path = folder / f"{k}.mge"
            mgeserial.save(graph, path, format="v1" if k % 3 == 2 else "v2")
            random = np.random.default_rng(k)
            with Session(mgeserial.load(path), "reference") as session:
                feeds = {
                    n: random.standard_normal(t.dims).astype(np.float32)
                    for n, t in session.inputs.items()
                }
                ours.append(session.run(feeds))
            _save_npz(folder / f"{k}.npz", feeds)
            jobs.append(
                json.dumps({"id": k, "model": str(path), "inputs": str(folder / f"{k}.npz")})
            )
        answers, failures = ask(args, folder, jobs, ours, naive=False)
        # x86 kernels of MegEngine are wrong now and then; its naive ones are the measure.
        doubtful = [job for job in jobs if str(json.loads(job)["id"]) in failures]
        overruled: dict[str, str] = {}
        if doubtful:
            again = ask(args, folder, doubtful, ours, naive=True)[1]
            overruled = {k: v for k, v in failures.items() if k not in again}
            failures = again
    result = {
        "schema": 1,
        "graphs": args.count,
        "answered": answers,
        "agree": answers - len(failures),
        "agree_with_naive_kernels_only": overruled,
        "operators": dict(types.most_common()),
        "failures": failures,
    }
    text = json.dumps(result, indent=1)
    if args.json == "-":
        print(text)
    else:
        Path(args.json).write_text(text + "\n", encoding="utf-8")
    print(f"{result['agree']} of {args.count} graphs agree", file=sys.stderr)
    return 0 if result["agree"] == args.count else 1


if __name__ == "__main__":
    sys.exit(main())

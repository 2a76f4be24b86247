"""Test cases from what a caller gives: inputs read, expected outputs computed, both described.

Source of the words of the lines and of the order of steps: MegEngine v0.5.1
sdk/load-and-run/dump_with_testcase_mge.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from loadrun.arrays import fit, read_bytes
from loadrun.images import read_pixels
from loadrun.inputs import is_random, read_items, split_items
from loadrun.session import Session
from mgeserial.dtypes import Array
from mgeserial.errors import InputError, MgeError, printable
from mgeserial.expressions import evaluate
from mgeserial.ir.graph import Graph
from mgeserial.ir.types import TensorType
from mgeserial.summary import summarize_values
from mgeserial.testcases import EXPECT, MAXERR, Case, assert_outputs

__all__ = [
    "Reading",
    "checked_network",
    "compute_expected",
    "describe_case",
    "input_types",
    "read_case",
    "read_specs",
]

# A list of test cases in a file: at most this many bytes.
_MAX_LIST = 1 << 26
_RAND = "#rand("
# Operators that are no functions of their inputs, and yet give the same in every run.
_REPEATABLE = frozenset(
    {"Host2DeviceCopy", "AssertEqual", "CondExecMark", "CondExecMarkIfNeed", "CondExecMerge"}
)
Log = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How inputs are read.

    Attributes:
        repeat: Times that what a file holds is repeated along its first axis.
        resize: Whether images are brought to the declared height and width.
        transform: Expression over `data` for what is read; None: as it is.
    """

    repeat: int = 1
    resize: bool = False
    transform: str | None = None


def read_specs(data: Sequence[str]) -> list[str]:
    """Test cases of `--data` arguments: `@file` stands for the lines of a file.

    Raises:
        InputError: A list cannot be read, or there is no test case.
    """
    specs: list[str] = []
    for item in data:
        if not item.startswith("@"):
            specs.append(item)
            continue
        content = read_bytes(item[1:])
        if len(content) > _MAX_LIST:
            raise InputError(f"a list of test cases of {len(content)} bytes", path=item[1:])
        try:
            lines = content.decode("utf-8-sig").splitlines()
        except UnicodeDecodeError as error:
            raise InputError(
                "not a list of test cases: one line of text each", path=item[1:]
            ) from error
        specs += [line.strip() for line in lines if line.strip()]
    if not specs:
        raise InputError("no test case is given", hint="-d 'data:cat.png' or -d '#rand(0,255)'")
    return specs


def input_types(graph: Graph) -> dict[str, TensorType]:
    """Types of a network's inputs by name, in the order of the file."""
    types = graph.inference.types
    return {n: types[v] for n, v in zip(graph.input_names, graph.inputs, strict=True)}


def read_case(
    spec: str, types: Mapping[str, TensorType], reading: Reading, *, seed: int, log: Log
) -> Case:
    """Read the inputs of one test case.

    A bare `#rand(...)` is for every input, a bare file for the only one. Images are read by OpenCV
    in BGR order. What is read is repeated, then transformed, then brought to the input's type.

    Args:
        spec: Items with `;` between, such as `data:cat.png;im_info:[[224,224,1]]`.
        types: Inputs of the network; expected ones (`<out>:expect`) may be given too.
        reading: How to read.
        seed: Seed of random inputs.
        log: Told what is done, one line at a time.

    Raises:
        InputError: An input is missing, unknown or given twice, cannot be read, or does not fit.
    """
    wanted = {n: t for n, t in types.items() if not n.endswith(EXPECT)}
    items = split_items([spec])
    if len(items) == 1 and items[0].startswith(_RAND):
        items = [f"{name}:{items[0]}" for name in wanted]

    def read_image(path: str, name: str, declared: TensorType) -> Array:
        pixels = read_pixels(path, name, declared, resize=reading.resize)
        if reading.resize:
            log(f"input {printable(path)} resized to {pixels.shape}")
        return pixels

    given = read_items(items, types, seed=seed, read_image=read_image)
    missing = [n for n in wanted if n not in given.arrays]
    if missing:
        raise InputError(
            f"no data for input {', '.join(map(repr, missing))} in `{printable(spec)}`",
            hint="the inputs: " + "; ".join(f"{printable(n)}: {t}" for n, t in wanted.items()),
        )
    arrays, random = {}, {}
    for name, array in given.arrays.items():
        item = given.sources[name]
        if is_random(item):
            _refuse_for_random(item, reading)
            random[name] = item[item.index(_RAND) :].strip()
            arrays[name] = array
        else:
            arrays[name] = _prepared(name, array, types[name], reading, log)
        if not name.endswith(EXPECT):
            _check_shape(name, arrays[name].shape, types[name], log)
    return Case(arrays, seed if random else None, random)


def _refuse_for_random(item: str, reading: Reading) -> None:
    for option, is_set in (
        ("--resize-input", reading.resize),
        ("--input-transform", reading.transform is not None),
    ):
        if is_set:
            raise InputError(f"`{printable(item)}`: {option} is for files, not for random values")


def _prepared(name: str, array: Array, declared: TensorType, reading: Reading, log: Log) -> Array:
    """Repeat, transform and convert what was read for an input."""
    if name.endswith(EXPECT):
        return fit(name, array, declared)
    if reading.repeat > 1:
        rows = array.shape[0] if array.ndim else 1
        if array.nbytes * reading.repeat > 1 << 32:
            raise InputError(f"input {name!r} repeated {reading.repeat} times is over 4 GiB")
        array = np.repeat(array, reading.repeat, axis=0) if rows and array.ndim else array
        log(f"repeat input for {reading.repeat} times, data shape is {array.shape}")
    if reading.transform is not None:
        array = evaluate(reading.transform, array)
    if declared.dtype.is_quantized and array.dtype == np.uint8:
        # Pixels are numbers, of which a quantised input holds the codes.
        array = array.astype(np.float32)
    return fit(name, array, declared)


def _check_shape(name: str, shape: tuple[int, ...], declared: TensorType, log: Log) -> None:
    """Refuse another number of dimensions; other sizes are told, for the network may take them."""
    wanted = declared.shape
    if wanted is None:
        return
    if len(wanted) != len(shape):
        raise InputError(f"input {name!r} is {declared}, the data have shape {shape}")
    if any(n is not None and n != m for n, m in zip(wanted, shape, strict=True)):
        log(f"dst_shape is {wanted}; data_shape is {shape}")


def compute_expected(
    session: Session, inputs: Mapping[str, Array], *, log: Log, names: Sequence[str] | None = None
) -> dict[str, Array]:
    """Outputs of a network for a case's inputs, by unique name; each is described.

    Args:
        session: The plain network.
        inputs: The inputs.
        log: Told of each output.
        names: The outputs wanted; None: all.

    Raises:
        MgeError: The network does not run on these inputs.
    """
    try:
        outputs = session.run(inputs)
    except MgeError as error:
        if error.hint is None:
            error.hint = "the network must run on the inputs of a test case; --resize-input brings "
            error.hint += "images to the declared size"
        raise
    wanted = {n: a for n, a in outputs.items() if names is None or n in names}
    _warn_of_chance(session, inputs, wanted, log)
    for name, array in wanted.items():
        like = summarize_values(array, session.outputs[name].dtype)
        log(
            f"generate test groundtruth: var={printable(name)} shape={array.shape} "
            f"range=({like.min}, {like.max}) mean={like.mean} var={like.sd**2}"
        )
    return wanted


def _warn_of_chance(
    session: Session, inputs: Mapping[str, Array], outputs: Mapping[str, Array], log: Log
) -> None:
    """Say which outputs another run gives otherwise: no run can be as expected there."""
    chance = {n.op.name for n in session.graph.nodes if not n.op.is_pure} - _REPEATABLE
    if not chance:
        return
    again = session.run(inputs)
    for name, array in outputs.items():
        if array.shape != again[name].shape or array.tobytes() != again[name].tobytes():
            log(
                f"output {printable(name)} differs between two runs ({', '.join(sorted(chance))}): "
                "its check fails"
            )


def checked_network(
    graph: Graph,
    cases: Sequence[Case],
    *,
    maxerr: float | Mapping[str, float] = MAXERR,
    verbose: bool = True,
    log: Log,
) -> tuple[Graph, list[Case]]:
    """The network with checks of its outputs, and the cases with what the checks need.

    An output that is empty in some case is not checked: there is nothing to compare.
    """
    shapes: dict[str, tuple[int, ...] | None] = {}
    types = graph.inference.types
    for name, value in zip(graph.output_names, graph.outputs, strict=True):
        found = {case.expected[name].shape for case in cases}
        if any(0 in shape for shape in found):
            log(f"output {printable(name)} is empty: it is not checked")
        elif types[value].is_static:
            # What the network declares, whatever shapes the cases have.
            shapes[name] = types[value].dims
        else:
            same = len(found) == 1 and types[value].shape is None
            shapes[name] = found.pop() if same else None
    network = assert_outputs(graph, shapes, maxerr=maxerr, verbose=verbose)
    kept = [
        case.with_expected({n: a for n, a in case.expected.items() if n in shapes})
        for case in cases
    ]
    return network, kept


def describe_case(case: Case, types: Mapping[str, TensorType]) -> str:
    """The lines that say what a test case holds: shape, type, range, mean and sd of each value."""
    lines = []
    for name in sorted(case.arrays):
        array = case.arrays[name]
        declared = types.get(name)
        like = summarize_values(array, None if declared is None else declared.dtype)
        lines.append(
            f"{printable(name)}: shape={array.shape} dtype={_type_name(array, declared)} "
            f"range=({like.min:.2f},{like.max:.2f}) mean={like.mean:.2f} sd={like.sd:.2f}"
        )
    return "add testcase: \n " + "\n ".join(lines)


def _type_name(array: Array, declared: TensorType | None) -> str:
    if declared is None or not (declared.dtype.is_quantized or declared.dtype.is_lowbit):
        return array.dtype.name
    return str(declared.dtype)

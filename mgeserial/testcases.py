"""Test cases inside a model file: inputs and expected outputs that travel with the network.

The network gets an input `<out>:expect` for each output, and its outputs become AssertEqual
operators over the expected value, the computed one and the error between them, which is an
explicit sub graph. Each test case is a graph of its own after the network: one value for each
input, sorted by name.

Source: FORMAT section (c), checked against files of MegEngine 1.13.0 (layouts of 0.5.1 and 1.13).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mgeserial import params as P
from mgeserial._version import __version__
from mgeserial.author import GraphBuilder
from mgeserial.dtypes import FLOAT32, Array, DType, DTypeEnum
from mgeserial.errors import FormatError, GraphError, InputError, UnsupportedError, printable
from mgeserial.format.versions import origin
from mgeserial.ir.copying import copy_graph, reachable
from mgeserial.ir.graph import Graph, Metadata, Node, Output, Value, input_name
from mgeserial.ir.model import GraphInfo, Model, ModelInfo
from mgeserial.ir.tensor import Tensor
from mgeserial.ops import registry

__all__ = [
    "EXPECT",
    "MAXERR",
    "Case",
    "assert_outputs",
    "cases_of",
    "checked_name",
    "make_model",
    "plain_model",
    "strip_asserts",
    "tolerances",
]

# The input that holds what output `<out>` should be: `<out>:expect`.
EXPECT = ":expect"
# Largest error allowed unless told otherwise: the default of MegEngine's script.
MAXERR = 1e-4
_ASSERT = "AssertEqual"
_NOTE = "mgeserial_testcase"
_MAX_NOTE = 1 << 16
# Where MegEngine's scripts put the values of test cases.
_COMP_NODE = "cpux:0"


@dataclass(frozen=True, slots=True)
class Case:
    """One test case.

    Attributes:
        arrays: Value by input name, expected ones (`<out>:expect`) included; stored integers for
            quantised types.
        seed: Seed of its random inputs; None when nothing is random or the file does not say.
        random: What random inputs were asked for, by name: `#rand(0,255)`.
    """

    arrays: Mapping[str, Array]
    seed: int | None = None
    random: Mapping[str, str] = field(default_factory=dict)

    @property
    def inputs(self) -> dict[str, Array]:
        """Values without the expected ones."""
        return {n: a for n, a in self.arrays.items() if not n.endswith(EXPECT)}

    @property
    def expected(self) -> dict[str, Array]:
        """Expected values by output name."""
        return {n.removesuffix(EXPECT): a for n, a in self.arrays.items() if n.endswith(EXPECT)}

    def with_expected(self, values: Mapping[str, Array]) -> Case:
        """The same inputs with other expected values, by output name."""
        return replace(self, arrays={**self.inputs, **{n + EXPECT: a for n, a in values.items()}})


# -- the network ----------------------------------------------------------------------------------


def assert_outputs(
    graph: Graph,
    shapes: Mapping[str, Sequence[int] | None],
    *,
    maxerr: float | Mapping[str, float] = MAXERR,
    verbose: bool = True,
) -> Graph:
    """A copy of a network that checks its own outputs.

    For each output `<out>` there is an input `<out>:expect`, and the output becomes
    AssertEqual(expect, out, err) with err = max |expect - out| / max(1, min(|expect|, |out|)), a
    Reduce to shape (1,). Both are converted to Float32 first when they have another type, for
    MegEngine 1.13.0 takes three inputs of one type only. (Its own script makes the error of
    integers an integer, so that no error below 1 is found.)

    Args:
        graph: The network; it stays as it is.
        shapes: Shape of each output by unique name, None where it differs between cases; these
            outputs are checked, others stay as they are.
        maxerr: Largest error allowed, one for all or by output name.
        verbose: Whether MegEngine prints the error of each run.

    Raises:
        InputError: `maxerr` is no number from 0, or names no output.
        GraphError: The network has test inputs already.
        UnsupportedError: An output's type has no error.
    """
    taken = [n for n in graph.input_names if n.endswith(EXPECT)]
    if taken or any(n.op.name == _ASSERT for n in graph.nodes):
        raise GraphError(
            f"the network checks its outputs already ({', '.join(taken) or _ASSERT})",
            hint="`mgeserial testcase add` adds test cases to it, `testcase strip` removes them",
        )
    limits = _limits(maxerr, graph.output_names)
    new, _ = copy_graph(graph)
    builder = GraphBuilder.within(new, after=new.nodes[-1] if new.nodes else None)
    outputs = []
    for out, name in zip(new.output_list, graph.output_names, strict=True):
        if name not in shapes:
            outputs.append(out)
            continue
        checked = _check(builder, out.value, name, shapes[name], limits[name], verbose)
        outputs.append(Output(checked, checked.name, out.original_id))
    new.set_outputs(outputs)
    return new


def _limits(maxerr: float | Mapping[str, float], names: Sequence[str]) -> dict[str, float]:
    if isinstance(maxerr, Mapping):
        unknown = [n for n in maxerr if n not in names]
        if unknown:
            raise InputError(
                f"no output is called {unknown[0]!r}", hint=f"outputs: {', '.join(names)}"
            )
        limits = {n: float(maxerr.get(n, MAXERR)) for n in names}
    else:
        limits = dict.fromkeys(names, float(maxerr))
    for name, limit in limits.items():
        if not 0 <= limit <= 3.0e38:
            raise InputError(f"maxerr of {name!r} must be a number from 0, got {limit}")
    # Files hold float32, and 1e-4 as such is the parameter's default.
    return {name: float(np.float32(limit)) for name, limit in limits.items()}


def _check(
    b: GraphBuilder,
    real: Value,
    name: str,
    shape: Sequence[int] | None,
    maxerr: float,
    verbose: bool,
) -> Value:
    """Add the expected input of one output, the error and the operator that checks it."""
    dtype: DType = b.type_of(real).dtype
    if dtype.kind in (DTypeEnum.Complex64, DTypeEnum.Byte) or (
        dtype.is_lowbit and not dtype.is_quantized
    ):
        raise UnsupportedError(
            f"output {name!r} is {dtype}: there is no error between such values",
            hint="--no-assert writes the inputs only",
        )
    expect = b.input(name + EXPECT, shape, dtype)
    left, right = _as_real(b, expect, dtype), _as_real(b, real, dtype)
    one = b.const(np.ones(1, np.float32))
    mode = P.ElemwiseMode
    distance = b.elemwise(b.elemwise(left, right, mode=mode.SUB), mode=mode.ABS)
    smaller = b.elemwise(
        b.elemwise(left, mode=mode.ABS), b.elemwise(right, mode=mode.ABS), mode=mode.MIN_
    )
    error = b.elemwise(distance, b.elemwise(smaller, one, mode=mode.MAX_), mode=mode.TRUE_DIV)
    largest = b.reduce(error, b.const(np.ones(1, np.int32)), mode=P.ReduceMode.MAX_)
    label = f"assert_eq({name}{EXPECT},{name})"
    return b.assert_equal(left, right, largest, maxerr=maxerr, verbose=verbose, name=label)


def _as_real(b: GraphBuilder, value: Value, dtype: DType) -> Value:
    return value if dtype == FLOAT32 else b.type_cvt(value, dtype=FLOAT32)


def tolerances(graph: Graph) -> dict[str, float]:
    """Largest error allowed by output name, for each output that the network checks."""
    found = {}
    for node in graph.nodes:
        if node.op.name == _ASSERT:
            found[checked_name(node)] = float(node.param.maxerr)
    return found


def checked_name(node: Node) -> str:
    """Name of the output that an AssertEqual operator checks."""
    expect, real = _checked_values(node)
    name = input_name(expect)
    return name.removesuffix(EXPECT) if name.endswith(EXPECT) else real.display_name


def _checked_values(node: Node) -> tuple[Value, Value]:
    """What an AssertEqual operator compares, before both were converted for it."""
    expect, real = node.inputs[:2]
    if expect.node.op.name == "TypeCvt" and real.node.op.name == "TypeCvt":
        source = expect.node.inputs[0]
        if source.node.is_input and input_name(source).endswith(EXPECT):
            return source, real.node.inputs[0]
    return expect, real


def strip_asserts(graph: Graph) -> Graph:
    """A copy of a network without its checks: the plain network again.

    Users of an AssertEqual operator get the value that it checks; expected inputs and the
    operators that only they served are gone. Names of outputs are those of `<out>:expect`.
    """
    new, values = copy_graph(graph)
    checks = [values[n.outputs[0]].node for n in graph.nodes if n.op.name == _ASSERT]
    served = reachable([v for n in checks for v in n.inputs])
    outputs = list(new.output_list)
    for node in checks:
        checked, real = node.outputs[0], _checked_values(node)[1]
        for user in checked.users:
            new.connect(user, [real if v is checked else v for v in user.inputs])
        outputs = [
            _plain_output(o, real, checked_name(node), outputs, i) if o.value is checked else o
            for i, o in enumerate(outputs)
        ]
    new.set_outputs(outputs)
    for node in reversed(new.nodes):
        if node in checks or (node in served and _is_unused(new, node)):
            new.remove(node)
    return new


def _plain_output(
    old: Output, real: Value, name: str, outputs: Sequence[Output], place: int
) -> Output:
    """The output behind a check, with the name it had before names were made unique."""
    if real.name is None and name == f"unnamed{place}":
        return Output(real, None, old.original_id)
    if real.name is None:
        real.name = name
    repeated = name.rpartition("#")[0] == real.name
    return Output(real, real.name if repeated else name, old.original_id)


def _is_unused(graph: Graph, node: Node) -> bool:
    if node.is_input and not input_name(node.outputs[0]).endswith(EXPECT):
        return False
    return not any(v.users for v in node.outputs) and not set(node.outputs) & set(graph.outputs)


# -- the cases ------------------------------------------------------------------------------------


def cases_of(model: Model) -> list[Case]:
    """Test cases of a model, with what their metadata say of random inputs."""
    graphs = model.graphs[1:]
    return [_noted(a, g) for a, g in zip(model.testcases, graphs, strict=False)]


def _noted(arrays: Mapping[str, Array], graph: Graph) -> Case:
    """A case with its note; notes of other programs, and damaged ones, say nothing."""
    info = graph.metadata.user_info if graph.metadata is not None else b""
    if not info.startswith(b"{") or len(info) > _MAX_NOTE:
        return Case(arrays)
    try:
        note = json.loads(info.decode("utf-8"))
        if note.get(_NOTE) != 1:
            return Case(arrays)
        seed, random = note.get("seed"), note.get("random", {})
    except (ValueError, RecursionError, AttributeError):
        return Case(arrays)
    if type(seed) is not int or not isinstance(random, dict):
        return Case(arrays)
    return Case(arrays, seed, {str(k): str(v) for k, v in random.items()})


def _note(case: Case) -> bytes:
    """Metadata of a case: plain JSON, never a pickle."""
    if case.seed is None:
        return b""
    note = {
        _NOTE: 1,
        "writer": f"mgeserial {__version__}",
        "seed": case.seed,
        "random": dict(case.random),
    }
    return json.dumps(note, ensure_ascii=False, sort_keys=True).encode("utf-8", "replace")


def make_model(network: Graph, cases: Sequence[Case], *, like: Model | None = None) -> Model:
    """A model of a network and its test cases.

    Args:
        network: The network; its inputs are those of the cases, expected ones included.
        cases: The test cases, at least one.
        like: A model whose containers are kept when the new one is saved.

    Raises:
        InputError: There is no case, or a case does not have a value for each input.
    """
    if not cases:
        raise InputError("a file with test cases needs one at least")
    types = {n: v.type.dtype for n, v in zip(network.input_names, network.inputs, strict=True)}
    if len(types) != len(network.inputs):
        raise FormatError("two inputs of the network have the same name")
    graphs = [_case_graph(case, types, k) for k, case in enumerate(cases)]
    info = _info(like, 1 + len(graphs), len(graphs))
    return Model([network, *graphs], info)


def _case_graph(case: Case, types: Mapping[str, DType], index: int) -> Graph:
    """The graph of one case: a weight for each input, sorted by name."""
    missing = sorted(types.keys() - case.arrays.keys())
    unknown = sorted(case.arrays.keys() - types.keys())
    if missing or unknown:
        what = f"no value for {missing[0]!r}" if missing else f"a value for {unknown[0]!r}"
        raise InputError(
            f"test case {index} has {what}", hint=f"inputs: {', '.join(map(printable, types))}"
        )
    graph = Graph()
    outputs = []
    for k, name in enumerate(sorted(types, key=lambda n: n.encode("utf-8", "surrogatepass"))):
        tensor = Tensor.of(case.arrays[name], types[name], comp_node=_COMP_NODE)
        spec = registry.by_name("SharedDeviceTensor")
        node = graph.add(spec, (), outputs=[name], tensors=(tensor,))
        outputs.append(Output(node.outputs[0], name, k))
    graph.set_outputs(outputs)
    note = _note(case)
    graph.metadata = Metadata(is_valid=bool(note), user_info=note)
    return graph


def plain_model(network: Graph, *, like: Model | None = None) -> Model:
    """A model of a network alone, saved in the container of the model that it came from."""
    return Model([network], _info(like, 1, None))


def _info(like: Model | None, count: int, testcases: int | None) -> ModelInfo | None:
    """What says how to save: the first graph's container for all graphs."""
    known = like.info.graphs if like is not None and like.info is not None else ()
    if known:
        infos = (replace(known[0], aliases=()),) * count
    elif testcases is None:
        return None
    else:
        nowhere = origin("mgv2", 0, has_metadata=True)
        infos = (GraphInfo("mgv2", nowhere, 2, 0, 0, 0, 0, 0, None),) * count
    return ModelInfo(None, 0, testcases, None, infos)

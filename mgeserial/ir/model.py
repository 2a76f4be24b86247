"""A file as a whole: its graphs, its test cases, what is known of its making."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mgeserial.arguments import whole
from mgeserial.dtypes import Array
from mgeserial.errors import FormatError, GraphError, InputError, printable
from mgeserial.format.versions import Origin
from mgeserial.ir.graph import Graph

__all__ = ["GraphInfo", "Model", "ModelInfo"]


@dataclass(frozen=True, slots=True)
class GraphInfo:
    """How one graph is stored.

    `container` is MGBS, MGBC or mgv2; sizes in bytes; `release` is the release whose table layouts
    the reader used (None: today's).
    """

    container: str
    origin: Origin
    model_version: int
    hash: int
    shared_tensors: int
    start: int
    end: int
    meta_bytes: int
    release: str | None
    aliases: tuple[tuple[int, str | None], ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes the graph takes in the file."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a file is: wrapper, graphs, size in bytes."""

    path: str | None
    nbytes: int
    testcases: int | None
    lite: Mapping[str, Any] | None
    graphs: tuple[GraphInfo, ...]

    @property
    def kind(self) -> str:
        """One line: what the file is."""
        containers = sorted({g.container for g in self.graphs})
        text = "+".join(containers)
        if self.lite is not None:
            text = f"MegEngine Lite package of {text}"
        if self.testcases is not None:
            text += f" with {self.testcases} test case{'s' * (self.testcases != 1)}"
        elif len(self.graphs) > 1:
            text += f", {len(self.graphs)} graphs"
        return text


@dataclass(slots=True, eq=False)
class Model:
    """The graphs of a file in file order, test-case graphs included.

    With test cases (`info.testcases`), graph 0 is the network and each further one holds the
    inputs of a case.
    """

    graphs: list[Graph] = field(default_factory=list)
    info: ModelInfo | None = None

    @property
    def graph(self) -> Graph:
        """The first graph: the network.

        Raises:
            GraphError: The model has no graph.
        """
        if not self.graphs:
            raise GraphError("the model has no graph")
        return self.graphs[0]

    def graph_at(self, index: int) -> Graph:
        """A graph by its number in the file, from 0.

        Raises:
            InputError: There is none.
        """
        if not 0 <= whole(index, "the number of a graph") < len(self.graphs):
            raise InputError(
                f"graph {index} does not exist: the file has {len(self.graphs)}",
                path=None if self.info is None else self.info.path,
                hint="graphs are counted from 0" if self.graphs else None,
            )
        return self.graphs[index]

    @property
    def networks(self) -> Sequence[Graph]:
        """The graphs that are networks: the first alone when the file has test cases."""
        with_cases = self.info is not None and self.info.testcases is not None
        return self.graphs[:1] if with_cases else self.graphs

    @property
    def testcases(self) -> list[dict[str, Array]]:
        """Test cases of the file as {input name: array}; expected values are inputs too.

        The k-th output of a case belongs to the k-th input of the network in order of names.

        Raises:
            FormatError: A case does not have one value for each input.
        """
        if self.info is None or self.info.testcases is None:
            return []
        names = sorted(self.graph.input_names, key=lambda n: n.encode())
        cases = []
        for i, graph in enumerate(self.graphs[1:]):
            outputs = graph.outputs
            if len(outputs) != len(names):
                raise FormatError(
                    f"test case {i} has {len(outputs)} values for {len(names)} inputs",
                    path=self.info.path,
                    where=f"graph {i + 1}",
                )
            case = {}
            for name, value in zip(names, outputs, strict=True):
                if value.index >= len(value.node.tensors):
                    raise FormatError(
                        f"test case {i}: the value of {printable(name)!r} is computed, not stored",
                        path=self.info.path,
                        where=f"graph {i + 1}",
                    )
                case[name] = value.node.tensors[value.index].numpy()
            cases.append(case)
        return cases

    def __repr__(self) -> str:
        return f"Model({self.info.kind if self.info else 'in memory'}, {len(self.graphs)} graphs)"

"""How a layer is computed, as data: what the cost model decides, or a choice in its place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Way:
    """A choice for one layer; what is empty or 0 is left to the cost model.

    Attributes:
        algorithm: Of a convolution `direct`, `blocked` (direct, and never read as NCHW),
            `winograd2`, `winograd4`; of a chain of layers `apart` (not in bands).
        order: `rows`: units that follow each other share their inputs; `panels`: their weights;
            `copies`: of winograd by panels, each thread transforms the input for itself.
        vectors: Output vectors of a register tile.
        chunk: Row tiles of a work unit; of winograd rows of tiles.
    """

    algorithm: str = ""
    order: str = ""
    vectors: int = 0
    chunk: int = 0

    def __str__(self) -> str:
        """Its name, as policy files and reports have it."""
        parts = [self.algorithm, self.order]
        parts += [f"v{self.vectors}"] if self.vectors else []
        parts += [f"c{self.chunk}"] if self.chunk else []
        return " ".join(p for p in parts if p) or "default"


DEFAULT = Way()
APART = Way("apart")

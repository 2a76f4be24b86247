"""Numbers of output ids of operators where it is not fixed.

A v1 file does not store how many ids an operator takes, and volatile outputs (workspaces and the
like) take none, so each rule here is part of the format.
Source: FORMAT section (e), operators.json.
"""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.ops.registry import OutputQuery

__all__ = [
    "batch_norm",
    "branches",
    "check_non_finite",
    "inputs_less_one",
    "merged",
    "norm_backward",
    "singular_values",
    "stored_names",
    "tensors",
    "top_k",
]


def batch_norm(query: OutputQuery) -> int:
    """3, 4, 5 or 6: running statistics only when training with 5 inputs, reserve since v1.7.0."""
    running = query.inputs == 5 and query.param().fwd_mode == P.BNFwdMode.TRAINING
    if not query.added_reserve and query.version < 1000000 and query.inputs == 5:
        # Up to v0.6.0 five inputs always had five ids.
        running = running or query.version <= 800600
    return 3 + (2 if running else 0) + (1 if query.added_reserve else 0)


def top_k(query: OutputQuery) -> int:
    """Values and indices; KTH_ONLY's indices are volatile."""
    return 1 if query.param().mode == P.TopKMode.KTH_ONLY else 2


def singular_values(query: OutputQuery) -> int:
    """U, S, Vt; without compute_uv only S has an id."""
    return 3 if query.param().compute_uv else 1


def tensors(query: OutputQuery) -> int:
    """One id for each stored tensor."""
    return query.tensors


def inputs_less_one(query: OutputQuery) -> int:
    """One id for each input but one."""
    return max(query.inputs - 1, 0)


def norm_backward(query: OutputQuery) -> int:
    """dx, dweight, dbias; with 4 inputs (no weight) the last two are volatile."""
    return 1 if query.inputs == 4 else 3


def check_non_finite(query: OutputQuery) -> int:
    """n scaled copies and a flag; only the flag where the copies are volatile.

    v1.7.0 has the flag alone (table Empty); v1 files of v1.13.2 and later may have either, which
    only stored names tell.
    """
    if query.names is not None:
        return query.names
    if not isinstance(query.param(), P.CheckNonFinite):
        return 1
    return query.inputs + 1


def branches(query: OutputQuery) -> int:
    """One id a branch, and one for CASE_FALLBACK and PIECEWISE; the last input is the predicate."""
    keys = max(query.inputs - 1, 0)
    return keys if query.param().mode == P.CondExecPredMode.CASE else keys + 1


def merged(query: OutputQuery) -> int:
    """`nr_output` of the param table."""
    return int(query.param().nr_output)


def stored_names(query: OutputQuery) -> int:
    """Defined outside the file: as many as names are stored, else one."""
    return query.names if query.names else 1

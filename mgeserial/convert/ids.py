"""Ids of operators and of their outputs, as each container and release has them.

Source: FORMAT sections (b) and (e), operators.json.
"""

from __future__ import annotations

from dataclasses import dataclass

from mgeserial import params as P
from mgeserial.format.target import Target
from mgeserial.format.versions import release_index
from mgeserial.ir.graph import Node, Value
from mgeserial.ops.registry import Name, OpSpec, V2Id

__all__ = ["OperatorId", "operator_id", "output_slots"]


@dataclass(frozen=True, slots=True)
class OperatorId:
    """What a file stores to say which operator it is; text and version in v2 only."""

    type_id: int
    type: str = ""
    version: int = 0


def operator_id(op: OpSpec, target: Target) -> OperatorId | str:
    """The id for a target, or the reason why there is none."""
    if "unknown" in op.tags and not target.takes_unknown:
        return f"the operator is of a newer release than {target.release}"
    name = _name_at(op.names, target)
    if target.is_v2:
        known = _v2_id(op, target)
        if known is None:
            return _missing(op, target, "v2")
        if name is None and "unknown" not in op.tags:
            return _absent(op, target)
        return OperatorId(known.type_id, known.type, known.version)
    if target.container == "MGBC":
        if name is None:
            return _absent(op, target) if op.names else _missing(op, target, "v1")
        return OperatorId(name.persist_id)
    if not op.old_id:
        return _missing(op, target, "MGBS")
    if name is None and "unknown" not in op.tags:
        return _absent(op, target)
    return OperatorId(op.old_id)


def _name_at(names: tuple[Name, ...], target: Target) -> Name | None:
    """The name an operator is registered under in the target's release."""
    for name in names:
        if target.has(name.since) and (
            name.until is None or target.index <= release_index(name.until)
        ):
            return name
    return None


def _absent(op: OpSpec, target: Target) -> str:
    first, last = op.names[0], op.names[-1]
    if not target.has(first.since):
        return f"the operator exists since {first.since}"
    if last.until is not None and target.index > release_index(last.until):
        return f"the operator exists up to {last.until} only"
    return f"the operator does not exist in {target.release}"


def _missing(op: OpSpec, target: Target, container: str) -> str:
    if "unknown" in op.tags:
        return f"the operator is not known, so neither is its id in {container}"
    return f"{container} has no id for the operator"


def _v2_id(op: OpSpec, target: Target) -> V2Id | None:
    """What writers of the release store: of its registrations the one with the highest version."""
    if not op.v2:
        return None
    if op.name == "ElemwiseMultiType" and target.release == "v1.11.0":
        return op.v2[1]  # that release alone hashed the name with its NUL byte
    chosen = op.v2[op.v2_written]
    if chosen.since is None or target.has(chosen.since):
        return chosen
    older = [v for v in op.v2 if v.since is None or target.has(v.since)]
    return max(older, key=lambda v: v.version) if older else None


def output_slots(node: Node, target: Target) -> tuple[list[Value | None], list[str]]:
    """The outputs that take an id in the target, in order, None for one that the graph lacks.

    Two operators have other outputs in other releases: BatchNorm and CheckNonFinite.

    Returns:
        The values, and reasons why one that is needed has no place.
    """
    if node.op.name == "BatchNorm":
        return _batch_norm(node, target)
    if node.op.name == "CheckNonFinite":
        return _check_non_finite(node, target)
    return list(node.outputs), []


_STATISTICS = ("running mean", "running variance")
_BATCH = ("mean", "inverse deviation")
# The roles of a BatchNorm's outputs by their number.
_ROLES: dict[int, tuple[str, ...]] = {
    3: (*_BATCH, "y"),
    4: (*_BATCH, "reserve", "y"),
    5: (*_STATISTICS, *_BATCH, "y"),
    6: (*_STATISTICS, *_BATCH, "reserve", "y"),
}


def _batch_norm(node: Node, target: Target) -> tuple[list[Value | None], list[str]]:
    roles = _ROLES.get(len(node.outputs))
    if roles is None or not isinstance(node.stored_params[0] if node.stored_params else None, P.BN):
        return list(node.outputs), []
    have = dict(zip(roles, node.outputs, strict=True))
    five = len(node.inputs) == 5
    running = five and node.param.fwd_mode == P.BNFwdMode.TRAINING
    reasons: list[str] = []
    if target.release == "v1.0.0-rc1" and five and not running:
        reasons.append("files of v1.0.0-rc1 do not tell its outputs from those of v1.0.0")
    elif not target.has("v1.0.0-rc1"):
        running = five
    wanted = [*(_STATISTICS if running else ()), *_BATCH]
    wanted += ["reserve", "y"] if target.has("v1.7.0") else ["y"]
    return _fit(node, have, wanted, reasons, target)


def _check_non_finite(node: Node, target: Target) -> tuple[list[Value | None], list[str]]:
    count = len(node.inputs)
    if len(node.outputs) not in (1, count + 1):
        return list(node.outputs), []
    copies = [f"copy of input {i}" for i in range(count)]
    roles = [*copies, "flag"] if len(node.outputs) == count + 1 else ["flag"]
    have = dict(zip(roles, node.outputs, strict=True))
    wanted = [*copies, "flag"] if target.has("v1.7.2.m1") else ["flag"]
    return _fit(node, have, wanted, [], target)


def _fit(
    node: Node, have: dict[str, Value], wanted: list[str], reasons: list[str], target: Target
) -> tuple[list[Value | None], list[str]]:
    results = set(node.graph.outputs)
    for role, value in have.items():
        if role not in wanted and (value.users or value in results):
            reasons.append(f"its output `{role}` is used and does not exist in {target.release}")
    return [have.get(role) for role in wanted], reasons

"""The memory plan of a program as a document and as a picture.

The picture has a column a step and a row a byte of the arena; a value is a box from the step that
makes it to the step that reads it last.
"""

from __future__ import annotations

import os
from typing import Any
from xml.sax.saxutils import escape

from loadrun.backends.base import MemoryPlan
from mgeserial.errors import InputError, printable
from mgeserial.format.atomic import write_atomic

__all__ = ["memory_document", "memory_svg", "write_memory"]

_WIDTH, _HEIGHT, _MARGIN = 1000, 520, 60
_COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2", "#edc948", "#9c755f", "#e15759")
_MOST_BOXES = 20_000


def memory_document(plan: MemoryPlan, *, backend: str) -> dict[str, Any]:
    """The plan for JSON: sizes, the blocks, and what is alive at each step."""
    alive = [0] * len(plan.steps)
    for block in plan.blocks:
        for k in range(block.first, min(block.last + 1, len(alive))):
            alive[k] += block.nbytes
    return {
        "kind": "loadrun.memory",
        "schema": 1,
        "backend": backend,
        "arena_bytes": plan.arena_bytes,
        "weight_bytes": plan.weight_bytes,
        "workspace_bytes": plan.workspace_bytes,
        "sum_of_values_bytes": sum(b.nbytes for b in plan.blocks),
        "most_alive_bytes": max(alive, default=0),
        "steps": [
            {"step_index": k, "name": name, "alive_bytes": alive[k]}
            for k, name in enumerate(plan.steps)
        ],
        "values": [
            {
                "name": b.name,
                "size_bytes": b.nbytes,
                "offset_bytes": b.offset,
                "first_step_index": b.first,
                "last_step_index": b.last,
            }
            for b in plan.blocks
        ],
    }


def memory_svg(plan: MemoryPlan) -> str:
    """The picture; where values have no places in an arena, they are stacked in order."""
    steps = max(len(plan.steps), 1)
    offsets, top = [], 0
    for block in plan.blocks:
        offsets.append(top if block.offset is None else block.offset)
        top += block.nbytes
    placed = all(b.offset is not None for b in plan.blocks)
    height = max(plan.arena_bytes if placed else top, 1)
    wide, tall = _WIDTH - 2 * _MARGIN, _HEIGHT - 2 * _MARGIN
    title = (
        f"arena {plan.arena_bytes:,} bytes, weights {plan.weight_bytes:,} bytes, "
        f"{len(plan.blocks)} values in {len(plan.steps)} steps"
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        f'<text x="{_MARGIN}" y="30" font-size="16">{title}</text>',
        f'<rect x="{_MARGIN}" y="{_MARGIN}" width="{wide}" height="{tall}" fill="#f4f4f4"/>',
    ]
    for k, (block, offset) in enumerate(zip(plan.blocks[:_MOST_BOXES], offsets, strict=False)):
        x = _MARGIN + wide * block.first / steps
        width = wide * (block.last + 1 - block.first) / steps
        size = tall * block.nbytes / height
        y = _MARGIN + tall - tall * offset / height - size
        name = escape(printable(block.name))
        parts.append(
            f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(width, 0.5):.2f}" '
            f'height="{max(size, 0.5):.2f}" fill="{_COLOURS[k % len(_COLOURS)]}" '
            f'stroke="#fff" stroke-width="0.3"><title>{name}: {block.nbytes:,} bytes, steps '
            f"{block.first} to {block.last}</title></rect>"
        )
    bottom = _HEIGHT - _MARGIN + 22
    parts += [
        f'<text x="{_MARGIN}" y="{bottom}">step 0</text>',
        f'<text x="{_WIDTH - _MARGIN}" y="{bottom}" text-anchor="end">step {steps - 1}</text>',
        f'<text x="{_MARGIN - 6}" y="{_HEIGHT - _MARGIN}" text-anchor="end">0</text>',
        f'<text x="{_MARGIN - 6}" y="{_MARGIN + 10}" text-anchor="end">'
        f"{height / 1024:.0f} KiB</text>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def write_memory(plan: MemoryPlan, folder: str, *, backend: str) -> None:
    """Write `memory.json` and `memory.svg` into a folder.

    Raises:
        InputError: The folder or a file cannot be written.
    """
    import json

    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror or error}", path=folder) from error
    text = json.dumps(memory_document(plan, backend=backend), indent=1, ensure_ascii=False)
    data = (text + "\n").encode("utf-8", "surrogateescape")
    write_atomic(os.path.join(folder, "memory.json"), data)
    write_atomic(os.path.join(folder, "memory.svg"), memory_svg(plan).encode("utf-8", "replace"))

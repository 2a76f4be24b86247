"""Multi-head attention composed of native steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from single import check, graph_of

from mgeserial import params as P

Array = np.ndarray[Any, np.dtype[Any]]
USER = P.MultiHeadAttnAttnMaskType.USER_DEFINED_MASK
ONLY_MASK = P.MultiHeadAttnTensorCombinationType.ONLY_MASK
CLOSE = {"rtol": 3e-5, "atol": 3e-5}


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32) / 2


@pytest.mark.parametrize(
    ("changes", "mask"),
    [
        ({}, ""),
        ({}, "plane"),
        ({"qbias": False, "kbias": False, "vbias": False, "obias": False}, "heads"),
        ({"oproj_size": 0, "obias": False}, ""),
        ({"vproj_size": 0, "vbias": False}, "plane"),
        ({"oproj_size": 4, "reslink": True}, ""),
    ],
)
def test_attention(changes: dict[str, Any], mask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"qproj_size": 4, "kproj_size": 4, "vproj_size": 6, "oproj_size": 5} | {
        k: v for k, v in changes.items() if k.endswith("proj_size")
    }
    bias = {k: changes.get(k, True) for k in ("qbias", "kbias", "vbias", "obias")}
    last = sizes["vproj_size"] or 2 * 6
    count = 4 * sizes["qproj_size"] + 6 * sizes["kproj_size"] + 6 * sizes["vproj_size"]
    count += last * sizes["oproj_size"]
    count += sum(v for k, v in sizes.items() if bias[k[0] + "bias"])
    record = P.MultiHeadAttn(
        num_heads=2, embeding_size=4, k_size=6, v_size=6, sm_scaler=0.5, training=False,
        reslink=changes.get("reslink", False), **sizes, **bias,
    )  # fmt: skip
    q, k, v = numbers(2, 3, 4), numbers(2, 17, 6, seed=1), numbers(2, 17, 6, seed=2)
    feeds = [q, k, v, numbers(1, count, seed=3)]
    if mask:
        record = record.replace(attn_mask_type=USER, tensor_combination_type=ONLY_MASK)
        feeds.append(numbers(*((3, 17) if mask == "plane" else (4, 3, 17)), seed=4))
    graph = graph_of("MultiHeadAttn", feeds, record, constant=[3])
    check(graph, [*feeds[:3], *feeds[4:]], monkeypatch, **CLOSE)

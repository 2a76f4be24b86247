"""Multi-head attention and its gradient as one operator, against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_check import check, graph_of

from loadrun.session import Session
from mgeserial import params as P

pytestmark = pytest.mark.usefixtures("device")
Arrays = list[np.ndarray[Any, Any]]
_Mask = P.MultiHeadAttnAttnMaskType
_Extra = P.MultiHeadAttnTensorCombinationType


def _attention(kind: type = np.float32, **more: Any) -> tuple[Arrays, Any]:
    """Inputs q, k, v, weights and perhaps a mask, and the parameters."""
    random = np.random.default_rng(7)
    heads = more.pop("num_heads", 2)
    wide = more.pop("mask", 0)
    projections = more.pop("projections", (6, 6, 4, 8))
    sizes = more.pop("sizes", (8, 5, 7))
    biases = more.pop("biases", (True, False, True, True))
    q = random.standard_normal((3, 4, sizes[0]))
    k, v = (random.standard_normal((3, 5, n)) for n in sizes[1:])
    depths = (*sizes, projections[2] or heads * sizes[2])
    count = sum(
        d * p + (p if b else 0) for d, p, b in zip(depths, projections, biases, strict=True)
    )
    flat = random.standard_normal((1, count)) * 0.5
    arrays = [q, k, v, flat]
    if wide:
        arrays.append(random.standard_normal((4, 5) if wide == 2 else (3 * heads, 4, 5)))
    param = P.MultiHeadAttn(
        num_heads=heads, embeding_size=sizes[0], k_size=sizes[1], v_size=sizes[2],
        qproj_size=projections[0], kproj_size=projections[1], vproj_size=projections[2],
        oproj_size=projections[3], qbias=biases[0], kbias=biases[1], vbias=biases[2],
        obias=biases[3], sm_scaler=0.7,
        attn_mask_type=_Mask.USER_DEFINED_MASK if wide else _Mask.NO_MASK,
        tensor_combination_type=_Extra.ONLY_MASK if wide else _Extra.NONE,
        **{"training": False, "reslink": False, **more},
    )  # fmt: skip
    return [a.astype(kind) for a in arrays], param


_CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "reslink": {"reslink": True},
    "mask": {"mask": 2},
    "mask of every head": {"mask": 3},
    "heads of one element": {"projections": (2, 2, 2, 8)},
    "no projections": {"projections": (0, 0, 0, 0), "sizes": (6, 6, 3), "biases": (False,) * 4},
    "no output projection": {"projections": (6, 6, 4, 0), "biases": (True, True, True, False)},
    "one head": {"num_heads": 1},
    "dropout": {"training": True, "attn_prob": 0.3, "out_prob": 0.4, "seed": 5},
    "dropout, no output projection": {
        "training": True, "attn_prob": 0.2, "out_prob": 0.1, "projections": (6, 6, 8, 0),
        "biases": (True, True, True, False), "reslink": True,
    },
    "half precision": {"kind": np.float16},
}  # fmt: skip


@pytest.mark.parametrize("name", list(_CASES))
@pytest.mark.parametrize("constant", [True, False])
def test_attention_agrees(name: str, constant: bool) -> None:
    arrays, param = _attention(**_CASES[name])
    half = arrays[0].dtype == np.float16
    graph = graph_of("MultiHeadAttn", arrays, param, constant=[3] if constant else [])
    feeds = [a for k, a in enumerate(arrays) if k != 3 or not constant]
    tolerance = 2e-3 if half else 1e-5
    check(graph, feeds, rtol=tolerance, atol=tolerance, runs=2 if param.training else 1)


@pytest.mark.parametrize("name", list(_CASES))
def test_gradients_of_attention_agree(name: str) -> None:
    arrays, param = _attention(**_CASES[name])
    kind = arrays[0].dtype
    forward = graph_of("MultiHeadAttn", arrays, param)
    with Session(forward, "reference") as session:
        found = [a.copy() for a in session.run(arrays).values()]
    diff = np.random.default_rng(3).standard_normal(found[0].shape).astype(kind)
    feeds = [diff, *arrays, *found[1:]]
    place = len(feeds) - 2
    graph = graph_of("MultiHeadAttnBackward", feeds, param, dtypes={place: "Byte"})
    tolerance = 1e-2 if kind == np.float16 else 1e-4
    check(graph, feeds, rtol=tolerance, atol=tolerance)

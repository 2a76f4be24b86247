"""Operator records: warp."""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.ops.registry import Name, OpSpec, V2Id, register

REMAP = register(
    OpSpec(
        name="Remap",
        runtime_name="RemapForward",
        names=(
            Name("Remap", "v0.5.0", 2374822762628946951, until="v1.2.0"),
            Name("RemapV1", "v1.3.0", 17329299439164282474),
        ),
        old_id=7991894348397599907,
        v2=(V2Id("RemapV1", 1, 7991894348397599907),),
        params=(P.Remap,),
        inputs=("src", "map_xy"),
        source="operators.json",
    )
)

REMAP_BACKWARD_DATA = register(
    OpSpec(
        name="RemapBackwardData",
        runtime_name="RemapBackwardData",
        names=(
            Name("RemapBackwardData", "v1.0.0-rc1", 4207226166622651297, until="v1.2.0"),
            Name("RemapBackwardDataV1", "v1.3.0", 9803018275425671754),
        ),
        old_id=15284773977311085522,
        v2=(V2Id("RemapBackwardDataV1", 1, 15284773977311085522),),
        params=(P.Remap,),
        inputs=("map", "diff", "src_for_shape"),
        source="operators.json",
    )
)

REMAP_BACKWARD_MAT = register(
    OpSpec(
        name="RemapBackwardMat",
        runtime_name="RemapBackwardMat",
        names=(
            Name("RemapBackwardMat", "v1.0.0-rc1", 3961377066792436854, until="v1.2.0"),
            Name("RemapBackwardMatV1", "v1.3.0", 226402808098342309),
        ),
        old_id=12515271734490684168,
        v2=(V2Id("RemapBackwardMatV1", 1, 12515271734490684168),),
        params=(P.Remap,),
        inputs=("src", "map", "diff"),
        source="operators.json",
    )
)

WARP_AFFINE = register(
    OpSpec(
        name="WarpAffine",
        runtime_name="WarpAffineForward",
        names=(
            Name("WarpAffineV1", "v0.3.1", 6359070352970611271, until="v1.2.0"),
            Name("WarpAffineV2", "v1.3.0", 4229707358715931568),
        ),
        old_id=4439108789117598576,
        v2=(V2Id("WarpAffineV2", 1, 4439108789117598576),),
        params=(P.WarpAffine,),
        inputs=("src", "mat", "out_shape"),
        source="operators.json",
    )
)

WARP_PERSPECTIVE = register(
    OpSpec(
        name="WarpPerspective",
        runtime_name="WarpPerspectiveForward",
        names=(
            Name("WarpPerspective", "v0.3.1", 1939340553450215799, until="v1.2.0"),
            Name("WarpPerspectiveV2", "v1.3.0", 16071922779227072566),
        ),
        old_id=7748309056852641149,
        v2=(V2Id("WarpPerspectiveV2", 1, 7748309056852641149),),
        params=(P.WarpPerspective,),
        inputs=("src", "mat", "out_shape"),
        min_inputs=3,
        max_inputs=None,
        source="operators.json",
    )
)

WARP_PERSPECTIVE_BACKWARD_DATA = register(
    OpSpec(
        name="WarpPerspectiveBackwardData",
        runtime_name="WarpPerspectiveBackwardData",
        names=(
            Name("WarpPerspectiveBackwardData", "v0.3.1", 3911261122463308011, until="v1.2.0"),
            Name("WarpPerspectiveBackwardDataV2", "v1.3.0", 18000364362725739548),
        ),
        old_id=13816326393352931122,
        v2=(V2Id("WarpPerspectiveBackwardDataV2", 1, 13816326393352931122),),
        params=(P.WarpPerspective,),
        inputs=("mat", "mat_idx", "diff", "src_for_shape"),
        min_inputs=3,
        source="operators.json",
    )
)

WARP_PERSPECTIVE_BACKWARD_MAT = register(
    OpSpec(
        name="WarpPerspectiveBackwardMat",
        runtime_name="WarpPerspectiveBackwardMat",
        names=(
            Name("WarpPerspectiveBackwardMat", "v0.3.1", 1255483842699455490, until="v1.2.0"),
            Name("WarpPerspectiveBackwardMatV2", "v1.3.0", 7736426435595744048),
        ),
        old_id=3146398449590768814,
        v2=(V2Id("WarpPerspectiveBackwardMatV2", 1, 3146398449590768814),),
        params=(P.WarpPerspective,),
        inputs=("src", "mat", "mat_idx", "diff"),
        min_inputs=3,
        source="operators.json",
    )
)

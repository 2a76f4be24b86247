"""Operator records: attention."""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.ops.registry import Name, OpSpec, V2Id, register

MULTI_HEAD_ATTN = register(
    OpSpec(
        name="MultiHeadAttn",
        runtime_name="MultiHeadAttnForward",
        names=(Name("MultiHeadAttn", "v1.12.3", 10823589890459732839),),
        old_id=15170215230809952785,
        v2=(V2Id("MultiHeadAttn", 1, 15170215230809952785),),
        params=(P.MultiHeadAttn,),
        inputs=("q", "k", "v", "qkvo_weight_bias", "bias_v", "bias_k", "bias_v"),
        min_inputs=4,
        outputs=("out", "attn_weight", "mask_reservespace", "othr_reservespace"),
        output_count=4,
        source="operators.json",
    )
)

MULTI_HEAD_ATTN_BACKWARD = register(
    OpSpec(
        name="MultiHeadAttnBackward",
        runtime_name="MultiHeadAttnBackward",
        names=(Name("MultiHeadAttnBackward", "v1.12.3", 16485929394938767330),),
        old_id=7412136711349863139,
        v2=(V2Id("MultiHeadAttnBackward", 1, 7412136711349863139),),
        params=(P.MultiHeadAttn,),
        inputs=(
            "diff",
            "q",
            "k",
            "v",
            "wqkv",
            "attn_mask",
            "attn_weight",
            "mask_reservespace",
            "othr_reservespace",
        ),
        min_inputs=8,
        output_count=6,
        source="operators.json",
    )
)

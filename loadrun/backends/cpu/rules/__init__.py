"""Lowering rules, one family of operators per module."""

from __future__ import annotations

import importlib

_FIRST = (
    "conv",
    "elemwise",
    "shape",
    "matrix",
    "norm",
    "quantized",
    "resize",
    "recurrent",
)
# Imported when no rule of the first ones applies to an operator: what each has rules for.
_LATER: dict[str, tuple[str, ...]] = {
    "index": (
        "Subtensor",
        "IndexingMultiAxisVec",
        "MeshIndexing",
        "BatchedMeshIndexing",
        "SetSubtensor",
        "IndexingSetMultiAxisVec",
        "SetMeshIndexing",
        "BatchedSetMeshIndexing",
        "IncrSubtensor",
        "IndexingIncrMultiAxisVec",
        "IncrMeshIndexing",
        "BatchedIncrMeshIndexing",
        "IndexingOneHot",
        "IndexingSetOneHot",
        "IndexingRemap",
        "IndexingRemapBackward",
    ),
    "order": ("Argmax", "Argmin", "Argsort", "TopK", "NMSKeep"),
    "image": ("Resize", "Resize3D", "WarpAffine", "WarpPerspective", "Remap"),
    "warpgrad": (
        "RemapBackwardData",
        "RemapBackwardMat",
        "WarpPerspectiveBackwardData",
        "WarpPerspectiveBackwardMat",
    ),
    "roi": ("ROIAlign", "ROIPooling", "DeformablePSROIPoolingForward"),
    "roigrad": ("ROIAlignBackward", "ROIPoolingBackward", "DeformablePSROIPoolingBackward"),
    "move": (
        "Images2Neibs",
        "SlidingWindowTransposeBackward",
        "Diag",
        "RelayoutFormat",
        "Flip",
        "Rotate",
    ),
    "moments": ("GroupNorm", "InstanceNorm", "GeneralNorm", "LRN", "LRNBackward"),
    "product": (
        "Convolution",
        "ConvolutionBackwardData",
        "Convolution3D",
        "Convolution3DBackwardData",
        "ConvolutionBackwardFilter",
        "Convolution3DBackwardFilter",
    ),
    "batchconv": ("BatchConvBiasForward",),
    "filters": ("GaussianBlur", "DctChannelSelect"),
    "maskconv": ("MaskConvolution", "MaskPropagate"),
    "random": (
        "UniformRNG",
        "GaussianRNG",
        "ExponentialRNG",
        "PermutationRNG",
        "ShuffleRNG",
        "Dropout",
        "DropoutBackward",
    ),
    "inverse": ("MatrixInverse", "Cross"),
    "deform": (
        "DeformableConvForward",
        "DeformableConvBackwardData",
        "DeformableConvBackwardFilter",
        "CorrelationForward",
        "CorrelationBackwardData1",
        "CorrelationBackwardData2",
    ),
    "attention": ("MultiHeadAttn",),
    "windows": (
        "Local",
        "GroupLocal",
        "LocalShareForward",
        "LocalBackwardData",
        "LocalBackwardFilter",
        "GroupLocalBackwardData",
        "GroupLocalBackwardFilter",
        "LocalShareBackwardData",
        "LocalShareBackwardFilter",
        "RegionRestrictedConvolution",
        "RegionRestrictedConvolutionBackwardData",
        "RegionRestrictedConvolutionBackwardFilter",
        "SlidingWindowTranspose",
        "Images2NeibsBackward",
    ),
    "spread": (
        "ResizeBackward",
        "PaddingBackward",
        "PoolingBackward",
        "AdaptivePoolingBackward",
        "ArgsortBackward",
        "ShuffleRNGBackward",
        "DiagBackward",
    ),
    "typed": (
        "Elemwise",
        "PowC",
        "TypeCvt",
        "ElemwiseMultiType",
        "AffineInt",
        "FakeQuant",
        "TQT",
        "LSQ",
        "Where",
        "WhereBackward",
        "MaskedFill",
    ),
    "reduce": ("Reduce", "Cumsum", "Dot", "CheckNonFinite", "CheckHasInf"),
    "control": (
        "Identity",
        "Copy",
        "VirtualDep",
        "MarkDynamicVar",
        "MarkNoBroadcastElemwise",
        "AssertEqual",
    ),
    "color": ("CvtColor",),
    "fill": ("Padding", "Linspace"),
    "whole": ("MatrixMul", "BatchedMatrixMul"),
    "composed": (
        "BatchNorm",
        "BatchNormBackward",
        "LayerNormBackward",
        "GeneralNormBackward",
        "GroupNormBackward",
        "InstanceNormBackward",
        "SoftmaxBackward",
        "FakeQuantBackward",
        "TQTBackward",
        "LSQBackward",
    ),
}


def load(*, later: bool = True, operator: str = "") -> None:
    """Import modules, so that their rules are registered.

    Args:
        later: All modules, not just those that most networks need.
        operator: Of the later ones only that with rules for this operator.
    """
    rest = [m for m, names in _LATER.items() if later and operator in ("", *names)]
    for name in (*_FIRST, *rest):
        importlib.import_module(f"{__name__}.{name}")

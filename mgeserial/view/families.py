"""Families of operators: what they are called in a legend, and their colours.

The colours are marks beside text, never the only sign; text stands on the page's own ground.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FAMILIES", "Family", "family_of"]


@dataclass(frozen=True, slots=True)
class Family:
    """A family: key, name in the legend, colour on light and on dark ground."""

    key: str
    title: str
    light: str
    dark: str


FAMILIES: tuple[Family, ...] = (
    Family("port", "input, output", "#1a7f37", "#4ac26b"),
    Family("weight", "weight, constant", "#6e7781", "#9198a1"),
    Family("convolution", "convolution", "#0969da", "#58a6ff"),
    Family("matrix", "matrix", "#5538c8", "#a48cf5"),
    Family("elementwise", "elementwise", "#bf5b04", "#f0883e"),
    Family("norm", "normalisation, activation", "#a0388c", "#e275c8"),
    Family("pooling", "pooling", "#0e7c86", "#39c5cf"),
    Family("image", "image, region", "#57740a", "#a3c62d"),
    Family("reduction", "reduction, sorting", "#b3261e", "#ff8078"),
    Family("shape", "shape, index", "#8a6d00", "#d9b93a"),
    Family("sequence", "recurrence, attention", "#2f3fb0", "#8c9bff"),
    Family("random", "random", "#8d4a2f", "#d99a78"),
    Family("control", "control, runtime", "#4f5b66", "#b1bac4"),
    Family("other", "not known here", "#24292f", "#f0f6fc"),
)

# Beginnings of operators' names, tried in this order.
_BEGINNINGS: tuple[tuple[str, str], ...] = (
    ("port", "Host2DeviceCopy CounterProvider InputMaker"),
    (
        "weight",
        "SharedDeviceTensor VolatileSharedDeviceTensor ImmutableTensor MultipleDeviceTensor",
    ),
    (
        "convolution",
        "Convolution ConvBias BatchConvBias Deformable GroupLocal Local MaskConvolution "
        "MaskPropagate RegionRestricted Winograd",
    ),
    ("matrix", "MatrixMul BatchedMatrixMul Dot MatrixInverse SVD Cross"),
    ("random", "Uniform Gaussian Gamma Beta Permutation Shuffle Multinomial"),
    ("random", "PoissonRNG ExponentialRNG Dropout"),
    (
        "norm",
        "BatchNorm LayerNorm GroupNorm InstanceNorm GeneralNorm LRN Softmax FakeQuant TQT LSQ",
    ),
    ("pooling", "Pooling AdaptivePooling"),
    ("elementwise", "Elemwise PowC AffineInt Where MaskedFill TypeCvt AddUpdate"),
    (
        "image",
        "Resize Remap Warp ROI Correlation CvtColor DctChannelSelect Images2Neibs "
        "SlidingWindow Rotate Flip",
    ),
    ("reduction", "Reduce Argmax Argmin Cumsum Argsort TopK CondTake NonZero NMSKeep"),
    ("sequence", "RNN LSTM MultiHeadAttn"),
    (
        "shape",
        "Reshape Broadcast Dimshuffle AxisAddRemove Concat Split GetVarShape Subtensor "
        "SetSubtensor IncrSubtensor Indexing Mesh IncrMesh SetMesh Batched Linspace Eye "
        "Alloc Diag Padding RelayoutFormat ParamPack",
    ),
    (
        "control",
        "Identity Copy Sleep Virtual Mark Check CondExec Assert PersistentOutputStorage "
        "Loop Atlas Cambricon MagicMind TensorRT ExternC CustomOp NvOf",
    ),
)

# A filter although it begins as the random numbers do.
_EXCEPTIONS = {"GaussianBlur": "image"}


def family_of(operator: str) -> Family:
    """The family of an operator, by the name of its record; `other` when it has none."""
    key = _EXCEPTIONS.get(operator)
    if key is None:
        key = next(
            (k for k, names in _BEGINNINGS if operator.startswith(tuple(names.split()))), "other"
        )
    return _BY_KEY[key]


_BY_KEY = {f.key: f for f in FAMILIES}

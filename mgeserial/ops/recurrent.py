"""Recurrent operators: single cells, and stacks of layers over time with their gradients.

Gradients run the forward pass again instead of reading the reserve, whose contents are an
implementation's own. They are the derivatives: MegEngine 1.13.0's CPU gives them for one RELU or
TANH layer in one direction, and for other stacks and LSTM numbers that are not (some from memory it
never wrote). Dropout between layers does not exist on MegEngine's CPU, and not here.
Source: semantics section 11, checked against MegEngine 1.13.0.
"""

from __future__ import annotations

import numpy as np

from mgeserial import params as P
from mgeserial.dtypes import Array
from mgeserial.errors import UnsupportedError
from mgeserial.ir.types import Call, ShapeLike
from mgeserial.ops.cells import Cell, Elman, Float32, Lstm, Stack
from mgeserial.ops.numerics import narrow, to_real
from mgeserial.ops.registry import Name, OpSpec, V2Id, register
from mgeserial.ops.rules import dtype_of, need, of_floats

_SECTION = "semantics section 11"
_DERIVED = "derivative of the forward operator; semantics section 11 for the layout of weights"


def _cell_pre(call: Call, arrays: tuple[Array, ...]) -> Float32:
    """x Wih^T + bih + h Whh^T + bhh."""
    x, wih, bih, h, whh, bhh = (to_real(a, call.dtype(i)) for i, a in enumerate(arrays[:6]))
    return np.asarray(x @ wih.T + bih.reshape(1, -1) + h @ whh.T + bhh.reshape(1, -1))


def _check_cell(call: Call, gates: int) -> tuple[int, int]:
    """Check the inputs of a cell; give (batch, hidden)."""
    x, wih, bih, h, whh, bhh = (call.shape(i) for i in range(6))
    need(len(x) == len(h) == 2 and x[0] == h[0], f"x (b, i) and hx (b, h), got {x} and {h}")
    rows = gates * h[1]
    need(wih == (rows, x[1]), f"weight_ih must have shape {(rows, x[1])}, got {wih}")
    need(whh == (rows, h[1]), f"weight_hh must have shape {(rows, h[1])}, got {whh}")
    for name, bias in (("bias_ih", bih), ("bias_hh", bhh)):
        need(bias in ((rows,), (1, rows)), f"{name} must have shape {(rows,)}, got {bias}")
    return h[0], h[1]


def _rnn_cell_shapes(call: Call) -> list[ShapeLike]:
    return [_check_cell(call, 1)]


def _rnn_cell(call: Call, *arrays: Array) -> Array:
    pre = _cell_pre(call, arrays)
    return narrow(Elman(call.param.nonlineMode).forward(pre, pre)[0], call.dtype(0))


def _lstm_cell_shapes(call: Call) -> list[ShapeLike]:
    batch, hidden = _check_cell(call, 4)
    need(
        call.shape(6) == (batch, hidden),
        f"cx must have shape {(batch, hidden)}, got {call.shape(6)}",
    )
    return [(batch, hidden), (batch, hidden), (batch, 4 * hidden)]


def _lstm_cell(call: Call, *arrays: Array) -> list[Array]:
    """h', c' and the pre-activations, which lie in memory as (4, b, h) under a shape (b, 4h)."""
    pre = _cell_pre(call, arrays)
    h, c, _ = Lstm().forward(pre, to_real(arrays[6], call.dtype(6)))
    batch = pre.shape[0]
    gates = pre.reshape(batch, 4, -1).transpose(1, 0, 2).reshape(pre.shape)
    return [narrow(a, call.dtype(0)) for a in (h, c, gates)]


def _stack(call: Call, x: int, hx: int, flat: int) -> Stack:
    """The stack a call describes, from the inputs with these numbers; checks them."""
    param, cell = call.param, _cell(call)
    steps, states, weights = call.shape(x), call.shape(hx), call.shape(flat)
    need(len(steps) == 3, f"x must have shape (steps, batch, inputs), got {steps}")
    directions = 2 if param.bidirectional else 1
    need(param.num_layers > 0, f"num_layers must be at least 1, got {param.num_layers}")
    want = (param.num_layers * directions, steps[1], param.hidden_size)
    need(states == want, f"hx must have shape {want} (layers * directions, b, h), got {states}")
    result = Stack(
        cell, param.num_layers, directions, steps[2], param.hidden_size, bool(param.bias)
    )
    size = call.inputs[flat].size
    need(
        size == result.weight_size,
        f"flatten_weights must have {result.weight_size} elements, got {size} {weights}",
    )
    return result


def stack_of(call: Call) -> Stack:
    """The stack of layers of RNNForward or LSTMForward, or of one of their gradients."""
    lstm = call.op.name.startswith("LSTM")
    if call.op.name.endswith("Backward"):
        return _stack(call, 0, 2, 7 if lstm else 5)
    return _stack(call, 0, 1, 3 if lstm else 2)


def _cell(call: Call) -> Cell:
    if call.op.name.startswith("RNN"):
        return Elman(call.param.nonlineMode)
    if call.param.proj_size:
        raise UnsupportedError(f"LSTM with proj_size {call.param.proj_size} is not supported")
    return Lstm()


def _forward_shapes(call: Call) -> list[ShapeLike]:
    """Output, last states and reserve."""
    lstm = call.op.name.startswith("LSTM")
    stack = stack_of(call)
    steps, batch, _ = call.shape(0)
    if lstm:
        _like(call, 2, 1)
    state = call.shape(1)
    output = (steps, batch, stack.directions * stack.hidden)
    return [output, state, *([state] if lstm else []), (_reserve(call, stack),)]


def _reserve(call: Call, stack: Stack) -> int:
    """Elements of the reserve.

    As many as MegEngine's has bytes: that is how its operator sizes it.
    """
    steps, batch, _ = call.shape(0)
    count = stack.layers * stack.directions * steps * batch * stack.hidden
    states = 2 if call.op.name.startswith("LSTM") else 1
    return count * states * call.dtype(0).storage.itemsize


def _forward(call: Call, *arrays: Array) -> list[Array]:
    lstm = call.op.name.startswith("LSTM")
    stack = stack_of(call)
    real = [to_real(a, call.dtype(i)) for i, a in enumerate(arrays)]
    result = stack.run(real[0], real[1], real[2] if lstm else real[1], real[-1].reshape(-1))
    outputs = [result.y, result.hy, *([result.cy] if lstm else [])]
    reserve = np.zeros(_reserve(call, stack), call.dtype(0).storage)
    return [*(narrow(o, call.dtype(0)) for o in outputs), reserve]


def _like(call: Call, index: int, other: int) -> None:
    names = call.op.input_names
    need(
        call.shape(index) == call.shape(other),
        f"{names[index]} must have the shape of {names[other]} {call.shape(other)}, "
        f"got {call.shape(index)}",
    )


def _check_output(call: Call, stack: Stack) -> None:
    want = (*call.shape(0)[:2], stack.directions * stack.hidden)
    need(call.shape(1) == want, f"y must have shape {want}, got {call.shape(1)}")


def _rnn_backward_shapes(call: Call) -> list[ShapeLike]:
    stack = stack_of(call)
    _check_output(call, stack)
    _like(call, 3, 1)
    _like(call, 4, 2)
    return [call.shape(0), call.shape(2), call.shape(5)]


def _rnn_backward(call: Call, *arrays: Array) -> list[Array]:
    stack = stack_of(call)
    x, _y, hx, dy, dhy, flat = (to_real(a, call.dtype(i)) for i, a in enumerate(arrays[:6]))
    grads = stack.gradient(
        stack.run(x, hx, hx, flat.reshape(-1)), dy, dhy, np.zeros_like(dhy), flat.reshape(-1)
    )
    parts = (grads.x, grads.h, grads.weights.reshape(flat.shape))
    return [narrow(p, call.dtype(0)) for p in parts]


def _lstm_backward_shapes(call: Call) -> list[ShapeLike]:
    stack = stack_of(call)
    _check_output(call, stack)
    for index, other in ((3, 2), (4, 1), (5, 2), (6, 2)):
        _like(call, index, other)
    return [call.shape(0), call.shape(2), call.shape(3), call.shape(7)]


def _lstm_backward(call: Call, *arrays: Array) -> list[Array]:
    stack = stack_of(call)
    real = [to_real(a, call.dtype(i)) for i, a in enumerate(arrays[:8])]
    x, _y, hx, cx, dy, dhy, dcy, flat = real
    grads = stack.gradient(stack.run(x, hx, cx, flat.reshape(-1)), dy, dhy, dcy, flat.reshape(-1))
    parts = (grads.x, grads.h, grads.c, grads.weights.reshape(flat.shape))
    return [narrow(p, call.dtype(0)) for p in parts]


RNN_CELL_FORWARD = register(
    OpSpec(
        name="RNNCellForward",
        runtime_name="RNNCellForward",
        names=(Name("RNNCellForward", "v1.10.0", 6011055928985531902),),
        old_id=1969659708254731790,
        v2=(V2Id("RNNCellForward", 1, 1969659708254731790),),
        params=(P.RNNCell,),
        inputs=("x", "weight_ih", "bias_ih", "hx", "weight_hh", "bias_hh"),
        dtypes=of_floats(dtype_of(0)),
        shapes=_rnn_cell_shapes,
        reference=_rnn_cell,
        source=_SECTION,
    )
)

LSTM_CELL_FORWARD = register(
    OpSpec(
        name="LSTMCellForward",
        runtime_name="LSTMCell",
        names=(Name("LSTMCellForward", "v1.10.0", 442279621805818366),),
        old_id=16706113960341161389,
        v2=(V2Id("LSTMCellForward", 1, 16706113960341161389),),
        params=(P.Empty,),
        inputs=("x", "weight_ih", "bias_ih", "hx", "weight_hh", "bias_hh", "cx"),
        outputs=("h_new", "c_new", "gates"),
        output_count=3,
        dtypes=of_floats(dtype_of(0)),
        shapes=_lstm_cell_shapes,
        reference=_lstm_cell,
        source=_SECTION,
    )
)

RNN_FORWARD = register(
    OpSpec(
        name="RNNForward",
        runtime_name="RNN",
        names=(Name("RNNForward", "v1.8.0", 9581892917735010765),),
        old_id=3917898365417718988,
        v2=(V2Id("RNNForward", 1, 3917898365417718988),),
        params=(P.RNN,),
        inputs=("x", "hx", "flatten_weights"),
        outputs=("output", "hy", "reserve_space"),
        output_count=3,
        dtypes=of_floats(dtype_of(0)),
        shapes=_forward_shapes,
        reference=_forward,
        source=_SECTION,
    )
)

RNN_BACKWARD = register(
    OpSpec(
        name="RNNBackward",
        runtime_name="RNNBackward",
        names=(Name("RNNBackward", "v1.8.0", 14123701425298263454),),
        old_id=7138439557455861774,
        v2=(V2Id("RNNBackward", 1, 7138439557455861774),),
        params=(P.RNN,),
        inputs=("x", "y", "hx", "dy", "dhy", "flatten_weights", "reserve"),
        outputs=("dx", "dhx", "dw"),
        output_count=3,
        dtypes=of_floats(dtype_of(0)),
        shapes=_rnn_backward_shapes,
        reference=_rnn_backward,
        source=_DERIVED,
    )
)

LSTM_FORWARD = register(
    OpSpec(
        name="LSTMForward",
        runtime_name="LSTM",
        names=(Name("LSTMForward", "v1.8.0", 8770878732973493776),),
        old_id=14387525290922211689,
        v2=(V2Id("LSTMForward", 1, 14387525290922211689),),
        params=(P.LSTM,),
        inputs=("x", "hx", "cx", "flatten_weights"),
        outputs=("output", "hy", "cy", "reserve_space"),
        output_count=4,
        dtypes=of_floats(dtype_of(0)),
        shapes=_forward_shapes,
        reference=_forward,
        source=_SECTION,
    )
)

LSTM_BACKWARD = register(
    OpSpec(
        name="LSTMBackward",
        runtime_name="LSTMBackward",
        names=(Name("LSTMBackward", "v1.8.0", 10594873853269995244),),
        old_id=5118634445301488925,
        v2=(V2Id("LSTMBackward", 1, 5118634445301488925),),
        params=(P.LSTM,),
        inputs=("x", "y", "hx", "cx", "dy", "dhy", "dcy", "flatten_weights", "reserve"),
        outputs=("dx", "dhx", "dcx", "dw"),
        output_count=4,
        dtypes=of_floats(dtype_of(0)),
        shapes=_lstm_backward_shapes,
        reference=_lstm_backward,
        source=_DERIVED,
    )
)

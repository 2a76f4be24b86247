"""Operator records: recurrent."""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.ops.registry import Name, OpSpec, V2Id, register

RNN_CELL_FORWARD = register(
    OpSpec(
        name="RNNCellForward",
        runtime_name="RNNCellForward",
        names=(Name("RNNCellForward", "v1.10.0", 6011055928985531902),),
        old_id=1969659708254731790,
        v2=(V2Id("RNNCellForward", 1, 1969659708254731790),),
        params=(P.RNNCell,),
        inputs=("x", "weight_ih", "bias_ih", "hx", "weight_hh", "bias_hh"),
        source="operators.json",
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
        source="operators.json",
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
        source="operators.json",
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
        source="operators.json",
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
        source="operators.json",
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
        source="operators.json",
    )
)

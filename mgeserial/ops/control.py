"""Operator records: control."""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.ops import counts
from mgeserial.ops.registry import Name, OpSpec, V2Id, register

IDENTITY = register(
    OpSpec(
        name="Identity",
        runtime_name="Identity",
        names=(Name("Identity", "v0.3.1", 3432045686431204000),),
        old_id=18434495665359673677,
        v2=(V2Id("Identity", 1, 18434495665359673677),),
        params=(P.Empty,),
        inputs=("x",),
        source="operators.json",
    )
)

# target device = Operator.comp_node[0]
COPY = register(
    OpSpec(
        name="Copy",
        runtime_name="Copy",
        names=(Name("Copy", "v0.3.1", 10240138798055438597),),
        old_id=3469141309801762118,
        v2=(V2Id("Copy", 1, 3469141309801762118),),
        params=(P.Empty,),
        inputs=("x",),
        source="operators.json",
    )
)

SLEEP = register(
    OpSpec(
        name="Sleep",
        runtime_name="Sleep",
        names=(Name("Sleep", "v0.3.1", 13253369436352901731),),
        old_id=17719793138187536533,
        v2=(V2Id("Sleep", 1, 17719793138187536533),),
        params=(P.MGBSleep,),
        inputs=("x",),
        source="operators.json",
    )
)

# no param table; output = input 0 after all inputs are ready
VIRTUAL_DEP = register(
    OpSpec(
        name="VirtualDep",
        runtime_name="VirtualDep",
        names=(Name("VirtualDep", "v0.3.1", 1869165298984382818),),
        old_id=4643954226802548522,
        v2=(V2Id("VirtualDep", 1, 4643954226802548522),),
        inputs=("x", "deps"),
        min_inputs=1,
        max_inputs=None,
        source="operators.json",
    )
)

# training only
VIRTUAL_GRAD = register(
    OpSpec(
        name="VirtualGrad",
        runtime_name="VirtualGrad",
        names=(Name("VirtualGrad", "v0.3.1", 16007603277378350530),),
        old_id=2848975186301817720,
        v2=(V2Id("VirtualGrad", 1, 2848975186301817720),),
        params=(P.Empty,),
        inputs=("target", "wrt"),
        source="operators.json",
    )
)

MARK_DYNAMIC_VAR = register(
    OpSpec(
        name="MarkDynamicVar",
        runtime_name="MarkDynamicVar",
        names=(Name("MarkDynamicVar", "v0.3.1", 14394560528774649944),),
        old_id=14283345401061673113,
        v2=(V2Id("MarkDynamicVar", 1, 14283345401061673113),),
        params=(P.Empty,),
        inputs=("x",),
        source="operators.json",
    )
)

MARK_NO_BROADCAST_ELEMWISE = register(
    OpSpec(
        name="MarkNoBroadcastElemwise",
        runtime_name="MarkNoBroadcastElemwise",
        names=(Name("MarkNoBroadcastElemwise", "v0.3.1", 12520549118481362612),),
        old_id=16263521728381224232,
        v2=(V2Id("MarkNoBroadcastElemwise", 1, 16263521728381224232),),
        params=(P.Empty,),
        inputs=("x",),
        source="operators.json",
    )
)

# err is an explicit sub graph, see semantics.md. Output = input 0 (expect)
ASSERT_EQUAL = register(
    OpSpec(
        name="AssertEqual",
        runtime_name="AssertEqual",
        names=(Name("AssertEqual", "v0.3.1", 1225319139678932379),),
        old_id=7135914203479735452,
        v2=(V2Id("AssertEqual", 1, 7135914203479735452),),
        params=(P.AssertEqual,),
        inputs=("expect", "get", "err"),
        min_inputs=2,
        source="operators.json",
    )
)

COND_EXEC_MARK = register(
    OpSpec(
        name="CondExecMark",
        runtime_name="CondExecMark",
        names=(Name("CondExecMark", "v0.3.1", 1854020297800315679),),
        old_id=7836902283169590051,
        v2=(V2Id("CondExecMark", 1, 7836902283169590051),),
        params=(P.CondExecMark,),
        inputs=("x_0", "ppv"),
        min_inputs=2,
        max_inputs=None,
        output_count=counts.inputs_less_one,
        source="operators.json",
    )
)

COND_EXEC_MARK_IF_NEED = register(
    OpSpec(
        name="CondExecMarkIfNeed",
        runtime_name="CondExecMarkIfNeed",
        names=(Name("CondExecMarkIfNeed", "v0.3.1", 17404072350271115152),),
        old_id=13642296160966827450,
        v2=(V2Id("CondExecMarkIfNeed", 1, 13642296160966827450),),
        params=(P.CondExecMark,),
        inputs=("ppv", "x"),
        source="operators.json",
    )
)

COND_EXEC_MERGE = register(
    OpSpec(
        name="CondExecMerge",
        runtime_name="CondExecMerge",
        names=(Name("CondExecMerge", "v0.3.1", 15630147209821823054),),
        old_id=5820424135641322045,
        v2=(V2Id("CondExecMerge", 1, 5820424135641322045),),
        params=(P.CondExecMerge,),
        inputs=("branches",),
        min_inputs=1,
        max_inputs=None,
        output_count=counts.merged,
        source="operators.json",
    )
)

# control flow; compiled only with MGB_ENABLE_COND_EXEC
COND_EXEC_PRED = register(
    OpSpec(
        name="CondExecPred",
        runtime_name="CondExecPred",
        names=(Name("CondExecPred", "v0.3.1", 12941991949923244539),),
        old_id=16688842838746557851,
        v2=(V2Id("CondExecPred", 1, 16688842838746557851),),
        params=(P.CondExecPred,),
        inputs=("key_0", "pred"),
        min_inputs=2,
        max_inputs=None,
        output_count=counts.branches,
        source="operators.json",
    )
)

COND_EXEC_PRED_LOGICAL = register(
    OpSpec(
        name="CondExecPredLogical",
        runtime_name="CondExecPredLogical",
        names=(Name("CondExecPredLogical", "v0.3.1", 10322300688135731056),),
        old_id=17872418292550929439,
        v2=(V2Id("CondExecPredLogical", 1, 17872418292550929439),),
        params=(P.CondExecPredLogical,),
        inputs=("ppv",),
        min_inputs=1,
        max_inputs=None,
        source="operators.json",
    )
)

# v0.3.x only
PARAM_PACK_CONCAT = register(
    OpSpec(
        name="ParamPackConcat",
        runtime_name="ParamPackConcat",
        names=(Name("ParamPackConcat", "v0.3.1", 5074069888045433141, until="v0.3.4"),),
        old_id=16540738078970941426,
        v2=(),
        params=(P.Empty,),
        inputs=("tensors", "table"),
        min_inputs=1,
        max_inputs=None,
        source="operators.json",
    )
)

# v1.5.0..v1.6.0 only
CHECK_HAS_INF = register(
    OpSpec(
        name="CheckHasInf",
        runtime_name="CheckHasInf",
        names=(Name("CheckHasInf", "v1.5.0", 16644371743850212788, until="v1.6.0"),),
        old_id=8055901896344484584,
        v2=(),
        params=(P.Empty,),
        inputs=("x",),
        source="operators.json",
    )
)

CHECK_NON_FINITE = register(
    OpSpec(
        name="CheckNonFinite",
        runtime_name="CheckNonFinite",
        names=(Name("CheckNonFinite", "v1.7.0", 1172941019585180218),),
        old_id=7019647185624875471,
        v2=(V2Id("CheckNonFinite", 1, 7019647185624875471),),
        params=(P.CheckNonFinite,),
        inputs=("x0", "x1"),
        min_inputs=1,
        max_inputs=None,
        output_count=counts.check_non_finite,
        source="operators.json",
    )
)

# registered only; never in files
LOOP = register(
    OpSpec(
        name="Loop",
        runtime_name="Loop",
        names=(Name("opr::Loop", "v0.3.1", 10999898241574306805),),
        old_id=3831911395651639104,
        v2=(
            V2Id("opr::Loop", 1, 3831911395651639104),
            V2Id("opr::Loop", 2, 10999898241574306805, since="v1.10.0"),
        ),
        inputs=("x",),
        min_inputs=0,
        max_inputs=None,
        source="operators.json",
    )
)

"""Selections by the outer product of 1-d indices, for the whole tensor or per batch element."""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.ops.indexdesc import Kind
from mgeserial.ops.registry import Name, OpSpec, V2Id, register
from mgeserial.ops.rules import dtype_of
from mgeserial.ops.selection import (
    accumulate_dtypes,
    put,
    put_shapes,
    same_dtypes,
    take,
    take_shapes,
)

MESH_INDEXING = register(
    OpSpec(
        name="MeshIndexing",
        runtime_name="MeshIndexing",
        names=(Name("MeshIndexing", "v0.3.1", 17362121877327439516),),
        old_id=11933096046928722619,
        v2=(V2Id("MeshIndexing", 1, 11933096046928722619),),
        params=(P.IndexDescMaskDump,),
        inputs=("x", "index"),
        min_inputs=1,
        max_inputs=None,
        dtypes=dtype_of(0),
        shapes=take_shapes(Kind.MESH),
        reference=take(Kind.MESH),
        partial=True,
        source="semantics section 9, operators.json",
    )
)

INCR_MESH_INDEXING = register(
    OpSpec(
        name="IncrMeshIndexing",
        runtime_name="IncrMeshIndexing",
        names=(Name("IncrMeshIndexing", "v0.3.1", 16796115848065733169),),
        old_id=17037093325070309126,
        v2=(V2Id("IncrMeshIndexing", 1, 17037093325070309126),),
        params=(P.IndexDescMaskDump,),
        inputs=("x", "value", "index"),
        min_inputs=2,
        max_inputs=None,
        dtypes=accumulate_dtypes,
        shapes=put_shapes(Kind.MESH),
        reference=put(Kind.MESH, add=True),
        partial=True,
        source="semantics section 9, operators.json",
    )
)

SET_MESH_INDEXING = register(
    OpSpec(
        name="SetMeshIndexing",
        runtime_name="SetMeshIndexing",
        names=(Name("SetMeshIndexing", "v0.3.1", 9304535164282827681),),
        old_id=13025051573912188702,
        v2=(V2Id("SetMeshIndexing", 1, 13025051573912188702),),
        params=(P.IndexDescMaskDump,),
        inputs=("x", "value", "index"),
        min_inputs=2,
        max_inputs=None,
        dtypes=same_dtypes,
        shapes=put_shapes(Kind.MESH),
        reference=put(Kind.MESH, add=False),
        partial=True,
        source="semantics section 9, operators.json",
    )
)

BATCHED_MESH_INDEXING = register(
    OpSpec(
        name="BatchedMeshIndexing",
        runtime_name="BatchedMeshIndexing",
        names=(Name("BatchedMeshIndexing", "v0.3.1", 12998060009598903178),),
        old_id=11312068495573447999,
        v2=(V2Id("BatchedMeshIndexing", 1, 11312068495573447999),),
        params=(P.IndexDescMaskDump,),
        inputs=("x", "index"),
        min_inputs=1,
        max_inputs=None,
        dtypes=dtype_of(0),
        shapes=take_shapes(Kind.BATCHED_MESH),
        reference=take(Kind.BATCHED_MESH),
        partial=True,
        source="semantics section 9, operators.json",
    )
)

BATCHED_INCR_MESH_INDEXING = register(
    OpSpec(
        name="BatchedIncrMeshIndexing",
        runtime_name="BatchedIncrMeshIndexing",
        names=(Name("BatchedIncrMeshIndexing", "v0.3.1", 16069982219129636741),),
        old_id=2893979218370920768,
        v2=(V2Id("BatchedIncrMeshIndexing", 1, 2893979218370920768),),
        params=(P.IndexDescMaskDump,),
        inputs=("x", "value", "index"),
        min_inputs=2,
        max_inputs=None,
        dtypes=accumulate_dtypes,
        shapes=put_shapes(Kind.BATCHED_MESH),
        reference=put(Kind.BATCHED_MESH, add=True),
        partial=True,
        source="semantics section 9, operators.json",
    )
)

BATCHED_SET_MESH_INDEXING = register(
    OpSpec(
        name="BatchedSetMeshIndexing",
        runtime_name="BatchedSetMeshIndexing",
        names=(Name("BatchedSetMeshIndexing", "v0.3.1", 12589050563844874143),),
        old_id=488662674603728072,
        v2=(V2Id("BatchedSetMeshIndexing", 1, 488662674603728072),),
        params=(P.IndexDescMaskDump,),
        inputs=("x", "value", "index"),
        min_inputs=2,
        max_inputs=None,
        dtypes=same_dtypes,
        shapes=put_shapes(Kind.BATCHED_MESH),
        reference=put(Kind.BATCHED_MESH, add=False),
        partial=True,
        source="semantics section 9, operators.json",
    )
)

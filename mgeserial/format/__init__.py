"""Bytes of `.mge` files: containers, flatbuffers, versions. Knows nothing of operators."""

"""Native CPU engine: generates LLVM IR for a model and compiles it at load time."""

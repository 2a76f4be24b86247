"""The CUDA engine: kernels of our own, compiled when a model is loaded; emulated for tests."""

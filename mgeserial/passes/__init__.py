"""Transformations of graphs as MegEngine's `optimize_for_inference` does them, with reasons."""

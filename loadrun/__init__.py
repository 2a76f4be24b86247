"""Run and measure models."""

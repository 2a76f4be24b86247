"""Code generators, one family of operators per module."""

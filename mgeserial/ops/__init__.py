"""Operator records: everything about an operator, said once."""

"""Authoring: graphs built in Python, checked as they are typed."""

from mgeserial.author.layers import GraphBuilder

__all__ = ["GraphBuilder"]

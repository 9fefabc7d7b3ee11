"""Ranks of several hosts: who shares a host, what the links carry, and the engine that joins both."""

"""Proofs: `verify` replays a schedule symbolically; `bitwise`: all ranks get equal bits; `waits`: an order of steps."""

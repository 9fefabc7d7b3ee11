"""Collective algorithms as data: written once, proved, priced, drawn and executed."""

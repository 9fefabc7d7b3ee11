"""Ranks of one host: the memory that they share, how they wait for each other, collectives over it, in C or Python."""

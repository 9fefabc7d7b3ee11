"""Measurement of links, collectives and compute, and the fits that planning uses."""

"""Machines and links: the Cluster graph, and the ways to get one."""

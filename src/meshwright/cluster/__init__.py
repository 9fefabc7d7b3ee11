"""What the machines and links are: the Cluster graph, and the ways to get one."""

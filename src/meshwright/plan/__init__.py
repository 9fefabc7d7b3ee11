"""Time and memory of a Layout, and the search for the best one."""

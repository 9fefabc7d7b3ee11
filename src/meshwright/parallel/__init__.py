"""From a Layout to running modules."""

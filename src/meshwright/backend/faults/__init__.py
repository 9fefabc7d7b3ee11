"""Blame for a failure: errors that name a rank, records of the last collectives, notes that ranks leave each other."""

"""Who is to blame: errors that name a rank, the record of the last collectives, words that ranks leave each other."""

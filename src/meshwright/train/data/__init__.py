"""The data of a job: `corpus` (text files as tokens, held in a `token_file`), `feed` (the batches of a rank)."""

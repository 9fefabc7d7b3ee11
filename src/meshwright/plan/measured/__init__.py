"""The measured engine: the time and memory of a step from operators and collectives that were timed on this machine."""

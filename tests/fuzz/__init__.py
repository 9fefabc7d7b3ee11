"""Damaged files for every reader: `python -m tests.fuzz --minutes N`.

Good files of the tests are damaged (bytes, lines, numbers, the decoded structure) and read again. A reader may refuse
in one line, or accept: then an oracle walks what it made of the file. Every fault prints the seed that repeats it.
"""

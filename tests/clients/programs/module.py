"""Runs a client's own module unchanged, as `python -m` does, and says at its end whose groups it used.

Arguments: "gloo", which is what the client itself asks for, and the module.
"""

import os
import runpy
import sys

from reporting import report

name = sys.argv[2]
sys.argv = sys.argv[2:]
runpy.run_module(name, run_name="__main__", alter_sys=True)
report(int(os.environ["RANK"]), ended=name)

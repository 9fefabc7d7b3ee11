"""Run one benchmark: print its table and write its rows as JSON with the machine's description.

A benchmark is a module of this package with `run(arguments: list[str]) -> Result`; its docstring is its help. It
measures the peer in the same run, alternating, and reports medians and ratios. Where its `Result` has keys, rows are
kept by make of machine; a `publish()` in the module writes a page of its own from them. With MESHWRIGHT_TRIAL=DIR all
that it writes goes to DIR, and the results of the repository stay as they are.
"""

import importlib
import pkgutil
import sys
from typing import Any

import benchmarks
from benchmarks.makes import keep
from benchmarks.pages import refresh
from benchmarks.result import MODULES, RESULTS, describe_machine, module_of, print_table, write_document

NAMES = {module: name for name, module in MODULES.items()}
# modules of this package that serve a benchmark and are none themselves
HELPERS = {
    "__main__",
    "against_rank",
    "calibration",
    "contestants",
    "makes",
    "mpi_hosts",
    "mpis",
    "pages",
    "planner_bars",
    "planner_choice_rank",
    "plots",
    "published_jobs",
    "result",
    "sleeping",
    "step_kinds",
    "speed_page",
    "validation_page",
}


def main() -> int:
    """Run the benchmark that the command line names; return the exit code."""
    modules = [module.name for module in pkgutil.iter_modules(benchmarks.__path__)]
    names = sorted(NAMES.get(name, name) for name in modules if name not in HELPERS and not name.startswith("faults_"))
    if len(sys.argv) < 2 or sys.argv[1] not in names:
        print("usage: python -m benchmarks NAME [options]\n")
        for name in names:
            doc = _module(name).__doc__ or ""
            print(f"  {name:<14}{doc.strip().splitlines()[0]}")
        return 0 if len(sys.argv) < 2 else 2
    name = sys.argv[1]
    module = _module(name)
    result = module.run(sys.argv[2:])
    print_table(result)
    if result.keys:
        path = keep(name, result)
    else:
        path = write_document(RESULTS / f"{name}.json", name, describe_machine(), result.rows, result.notes)
    print(f"\nwritten: {path}")
    refresh()
    if hasattr(module, "publish"):
        module.publish()
    return 0


def _module(name: str) -> Any:
    return importlib.import_module(f"benchmarks.{module_of(name)}")


if __name__ == "__main__":
    sys.exit(main())

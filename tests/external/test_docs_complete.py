"""Commands and benchmarks of the documentation: each is run by a slow test, or it is said why not."""

import importlib
import pkgutil

import benchmarks
from tests.external.test_docs import EVERY, RUN
from tests.external.test_docs_live import ELSEWHERE, EMULATED, HERE, NAMED, SMALLEST, STARTED, TOO_LONG


def test_every_command_of_the_documentation_is_run_or_it_is_said_why_not():
    run = {*STARTED, *EMULATED, *(words for words in HERE if words.split()[1] in RUN)}
    run |= {words for words in HERE if words.startswith(("meshwright emulate fault", "meshwright emulate exec"))}
    run |= {
        "meshwright emulate list",
        "meshwright emulate list --json",
    }  # the latter by tests/unit/cli/test_terminal.py

    assert [w for w, _ in EVERY if w not in run and not any(w.startswith(start) for start in ELSEWHERE)] == []


def test_every_benchmark_of_the_documentation_is_run_or_it_is_said_why_not():
    assert [name for name in NAMED if name not in {*SMALLEST, *TOO_LONG}] == []
    assert {*SMALLEST} & {*TOO_LONG} == set()


def test_every_module_of_the_benchmarks_is_imported():
    names = [f"benchmarks.{module.name}" for module in pkgutil.iter_modules(benchmarks.__path__)]

    for name in names:
        if name != "benchmarks.__main__":
            importlib.import_module(name)

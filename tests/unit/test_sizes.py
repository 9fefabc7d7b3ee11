"""Functions fit on a screen, and nouns stay small: what is larger is listed here with its reason."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "meshwright"
MOST_LINES, MOST_ATTRIBUTES = 60, 15
TREES = {path: ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}

FACTS = "a table of facts or figures: one field for each, read by name"
ENGINE = "one machine of states whose parts share a lock or a loop"
LARGE_CLASSES = {
    "bench/reading/tables.py ReadTable": FACTS,
    "cluster/doctor/facts.py NodeFacts": FACTS,
    "cluster/graph.py Device": FACTS,
    "cluster/graph.py NodeGroup": FACTS,
    "cluster/graph.py CollectiveFit": FACTS,
    "hardware/kinds.py Accelerator": FACTS,
    "hardware/kinds.py NodeType": FACTS,
    "jobs/draft.py Draft": FACTS,
    "jobs/job.py Job": FACTS,
    "jobs/shell/state.py ScriptState": "what a shell knows while it reads a script",
    "jobs/sources.py Sources": FACTS,
    "cli/options.py JobQuestion": "the options beside --job",
    "cli/options.py PlanOptions": "the options of a command",
    "cli/options.py SimulateOptions": "the options of a command",
    "layout.py Layout": "the keys of --layout",
    "plan/analytic/calibration.py Calibration": FACTS,
    "plan/analytic/coefficients.py Coefficients": "the constants of the cost model, a row of a matrix",
    "plan/analytic/price.py Setting": "the options of a plan",
    "plan/analytic/price.py StepPrices": "the terms of a price, a column each",
    "plan/analytic/quantities.py Machine": FACTS,
    "plan/analytic/quantities.py ModelQuantities": "the quantities of an architecture, a column each",
    "plan/request.py PlanRequest": "the options of a plan",
    "plan/tables/runs.py Run": "the columns of a table of runs",
    "plan/search/study.py Study": FACTS,
    "plan/validate.py RowOutcome": "the keys of the object that validate prints for a row",
    "train/job/config.py TrainConfig": "the keys of a job's file",
    "train/job/config.py DataParallelConfig": "the keys of a job's file",
    "traces/formats/collector.py Process": ENGINE,
    "traces/formats/events.py Args": "the keys of an event",
    "traces/model.py RankTrace": FACTS,
    "workload/architecture.py Architecture": "the keys of a model",
    "workload/configs/decoders.py Traits": FACTS,
    "workload/configs/images.py Sight": FACTS,
    "workload/conventions.py Conventions": FACTS,
    "workload/engines.py EngineFacts": FACTS,
    "backend/hosts/network.py HostsView": ENGINE,
    "backend/local/engine.py LocalEngine": ENGINE,
    "backend/local/ranks.py LocalGroup": ENGINE,
    "backend/wire/mailbox.py Mailbox": ENGINE,
    "parallel/asynchronous/coordinator.py Coordinator": ENGINE,
    "parallel/pipeline/engine.py PipelineEngine": ENGINE,
    "simulate/nodes.py NodesTopology": "the links of a cluster, an array each",
    "train/loop.py Trainer": ENGINE,
}
LONG_FUNCTIONS = {
    "simulate/engine.py run_numpy": "one loop over events, whose arrays every part changes",
    "train/asynchronous/serve.py _coordinate": "its callbacks share the run's log, events and saver",
}


def name_of(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(PACKAGE)} {node.name}"


def attributes(node: ast.ClassDef) -> set[str]:
    """Return the fields that a class declares, and what its methods set on themselves."""
    found = {one.target.id for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)}
    for one in ast.walk(node):
        if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store) and isinstance(one.value, ast.Name):
            found |= {one.attr} if one.value.id == "self" else set()
    return found


def test_every_function_fits_on_a_screen():
    long = {
        name_of(path, node)
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno - node.lineno + 1 > MOST_LINES
    }

    assert long == set(LONG_FUNCTIONS)


def test_every_class_has_few_attributes():
    large = {
        name_of(path, node)
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and len(attributes(node)) > MOST_ATTRIBUTES
    }

    assert large == set(LARGE_CLASSES)


def test_what_a_class_declares_and_sets_counts():
    tree = ast.parse("class A:\n    x: int\n    def f(self):\n        self.y, self.z = 1, 2\n        self.y += 1\n")

    assert attributes(tree.body[0]) == {"x", "y", "z"}

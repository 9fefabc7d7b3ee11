"""From a run folder to its comparison and its page."""

from ..train.run_folder import RunFolder
from .compare import Comparison, compare
from .page import write_page


def report(folder: RunFolder) -> Comparison:
    """Write report.html of a finished run and return predicted beside measured; InputError if it is not finished."""
    plan, measured = folder.plan(), folder.measured()
    comparison = compare(plan.predicted, measured)
    write_page(
        folder.report,
        title=folder.path.name,
        comparison=comparison,
        plan=plan,
        predicted=plan.predicted,
        measured=measured,
        metrics=folder.metric_rows(),
        timelines={"predicted": folder.timeline("predicted"), "measured": folder.timeline("measured")},
    )
    return comparison

"""report.html: one self-contained page of a run."""

from pathlib import Path
from typing import Any

import jinja2
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from ..files import write_atomic
from ..layout import Plan
from ..timeline import Performance, Timeline
from ..units import format_time
from .compare import PARTS, Comparison

COLORS = {
    "forward": "#4c78a8",
    "backward": "#f58518",
    "optimizer": "#54a24b",
    "all_reduce": "#e45756",
    "data": "#b279a2",
}


def write_page(
    path: Path,
    *,
    title: str,
    comparison: Comparison,
    plan: Plan,
    predicted: Performance,
    measured: Performance,
    metrics: list[dict[str, float]],
    timelines: dict[str, Timeline],
) -> None:
    """Write the page; `timelines` are drawn one above the other, one step each."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("meshwright.report"), autoescape=True, undefined=jinja2.StrictUndefined
    )
    figures = [_parts(predicted, measured), _steps(timelines), _losses(metrics), _throughput(metrics)]
    page = environment.get_template("run.html").render(
        title=title,
        comparison=comparison,
        plan=plan,
        predicted=predicted,
        alternatives=plan.alternatives,
        format_time=format_time,
        plotly=get_plotlyjs(),
        figures=[figure.to_json().replace("</", "<\\/") for figure in figures],
    )
    write_atomic(path, page.encode())


def _parts(predicted: Performance, measured: Performance) -> go.Figure:
    figure = go.Figure()
    for name, performance in (("predicted", predicted), ("measured", measured)):
        values = [getattr(performance, field) * 1e3 for field in PARTS.values()]
        figure.add_bar(name=name, x=list(PARTS), y=values)
    return _titled(figure, "Parts of a step", "ms")


def _steps(timelines: dict[str, Timeline]) -> go.Figure:
    """Draw one step of each timeline: bars by rank and lane."""
    figure = go.Figure()
    shown: set[str] = set()
    for source, timeline in timelines.items():
        last = max(span.step for span in timeline.spans)
        spans = [span for span in timeline.spans if span.step == last]
        origin = min(span.start_s for span in spans)
        for span in spans:
            figure.add_bar(
                orientation="h",
                y=[f"{source} rank {span.rank} {span.lane}"],
                x=[(span.end_s - span.start_s) * 1e3],
                base=[(span.start_s - origin) * 1e3],
                name=span.name,
                legendgroup=span.name,
                showlegend=span.name not in shown,
                marker_color=COLORS.get(span.name, "#888888"),
                hovertemplate=f"{span.name} %{{x:.3f}} ms"
                + (f", {span.bytes:,} bytes" if span.bytes else "")
                + "<extra></extra>",
            )
            shown.add(span.name)
    figure.update_layout(barmode="overlay", yaxis={"autorange": "reversed"}, height=120 + 40 * 8)
    return _titled(figure, "One step on each rank", "", "ms")


def _losses(metrics: list[dict[str, float]]) -> go.Figure:
    figure = go.Figure()
    figure.add_scatter(x=[row["step"] for row in metrics], y=[row["loss"] for row in metrics], name="training")
    held_out = [row for row in metrics if "validation_loss" in row]
    figure.add_scatter(
        x=[row["step"] for row in held_out],
        y=[row["validation_loss"] for row in held_out],
        name="held out",
        mode="lines+markers",
    )
    return _titled(figure, "Loss", "nats per token", "step")


def _throughput(metrics: list[dict[str, float]]) -> go.Figure:
    figure = go.Figure()
    figure.add_scatter(x=[row["step"] for row in metrics], y=[row["tokens_per_s"] for row in metrics], name="tokens/s")
    return _titled(figure, "Throughput", "tokens/s", "step")


def _titled(figure: go.Figure, title: str, y: str, x: str = "") -> Any:
    figure.update_layout(
        title=title, xaxis_title=x, template="plotly_white", margin={"l": 60, "r": 20, "t": 50, "b": 50}
    )
    if y:
        figure.update_layout(yaxis_title=y)
    return figure

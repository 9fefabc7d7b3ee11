"""A layout in words: its keys with blanks between them, and as a sentence for readers new to the keys."""

from ..layout import Layout
from ..units import counted

SHARDED = {
    1: "optimiser state sharded",
    2: "optimiser state and gradients sharded",
    3: "weights, gradients and optimiser state sharded",
}
SCHEDULES = {"1f1b": "1F1B", "gpipe": "GPipe", "interleaved": "interleaved 1F1B", "zb": "zero-bubble"}
OFFLOADED = {
    "optimizer": "optimiser state in host memory, updated there",
    "parameters": "weights and optimiser state in host memory, updated there",
}
RECOMPUTED = {"selective": "attention is computed again in backward", "full": "layers are computed again in backward"}


def layout_text(layout: Layout | str) -> str:
    """Return a layout, or its text, with blanks: a narrow column breaks it between its keys, and it parses back."""
    return str(layout).replace(",", ", ")


def layout_in_words(layout: Layout, micro_batches: int) -> str:
    """Return what each rank holds and does: "8 ranks: 2 copies of the model, ...; 4 micro-batches of 1 sequence"."""
    ranks = layout.world_size
    if layout.mode == "async":
        return f"{layout.dp} asynchronous workers, micro-batches of {counted(layout.mbs, 'sequence')}"
    parts = []
    if layout.dp > 1:
        parts.append(counted(layout.dp, "data-parallel rank") + _sharded(layout))
    elif layout.zero:
        parts.append(SHARDED[layout.zero] + f" over {counted(layout.dp * layout.cp, 'rank')}")
    if layout.tp > 1:
        also = ", their sequences too" if layout.sp else ""
        parts.append(f"each layer split over {layout.tp} tensor ranks{also}")
    if layout.cp > 1:
        parts.append(f"each sequence split over {layout.cp} context ranks")
    if layout.ep > 1:
        parts.append(f"experts spread over {layout.ep} ranks{_of_experts(layout)}")
    if layout.pp > 1:
        chunks = f" with {layout.vpp} stages each" if layout.vpp > 1 else ""
        parts.append(f"layers in {layout.pp} pipeline ranks{chunks}, {SCHEDULES[layout.schedule]}")
    if layout.offload != "none":
        parts.append(OFFLOADED[layout.offload])
    if layout.recompute != "none":
        parts.append(RECOMPUTED[layout.recompute])
    batch = f"{counted(micro_batches, 'micro-batch')} of {counted(layout.mbs, 'sequence')} a step"
    return f"{counted(ranks, 'rank')}: " + "; ".join([*parts, batch])


def _sharded(layout: Layout) -> str:
    if not layout.zero:
        return ", each with a copy of the model"
    ranks = layout.dp * layout.cp
    over = f" over {ranks} with the context ranks" if layout.cp > 1 else " over them"
    groups = f" in {layout.replicas} groups of {ranks // layout.replicas}, each with a whole model"
    return f", {SHARDED[layout.zero]}{groups if layout.replicas > 1 else over} (ZeRO {layout.zero})"


def _of_experts(layout: Layout) -> str:
    """Return how an expert is cut and how often it is held, where tensor ranks make that a question."""
    copies = layout.dp * layout.cp * layout.tp // (layout.ep * layout.expert_tp)
    cut = f"each cut over {layout.expert_tp} tensor ranks" if layout.expert_tp > 1 else "each whole"
    held = f", held {copies} times" if copies > 1 else ""
    return f" ({cut}{held})" if layout.tp > 1 or copies > 1 else ""

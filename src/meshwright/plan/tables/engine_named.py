"""The engine of a row that names none: by columns that one engine alone has, or by what is written beside the row."""

import re
from collections.abc import Iterable, Mapping, Sequence

from ..layouts.stacks import find_stack
from .cells import is_empty
from .mesh_cells import is_axis
from .names import leaf_of, letters

COLUMNS_OF = {  # without marks and case
    "megatron": frozenset(  # NVIDIA/Megatron-LM:megatron/training/arguments.py, and the lines of its log
        [
            *("tensormodelparallelsize", "pipelinemodelparallelsize", "expertmodelparallelsize"),
            *("recomputegranularity", "usedistributedoptimizer", "distributedoptimizer"),
            *("numlayerspervirtualpipelinestage", "elapsedtimeperiteration", "elapsedtimeperiterationms"),
        ]
    ),
    # AI-Hypercomputer/maxtext:src/MaxText/configs/base.yml
    "maxtext": frozenset({"maxtargetlength", "rematpolicy", "baseembdim", "basemlpdim"}),
    # pytorch/torchtitan:torchtitan/config/job_config.py
    "torchtitan": frozenset({"dataparallelsharddegree", "dataparallelreplicatedegree", "enablefloat8linear"}),
}
WORDS_OF = {  # in the name of a run or of its model, or in notes
    "pax": re.compile(r"(?i)(?<![a-z])pax(?:ml)?(?![a-z])"),
    "maxtext": re.compile(r"(?i)(?<![a-z])maxtext(?![a-z])"),
    "torchtitan": re.compile(r"(?i)(?<![a-z])torch[ -]?titan(?![a-z])"),
    "megatron": re.compile(r"(?i)(?<![a-z])megatron[- _]?(?:core|lm)(?![a-z])"),
    "nanotron": re.compile(r"(?i)(?<![a-z])nanotron(?![a-z])"),
    "mpt": re.compile(r"(?i)(?<![a-z])llm[- ]foundry(?![a-z])"),
}
WRITTEN = ("id", "model_name", "notes")
TORCH = re.compile(r"(?i)(?<![a-z])(?:py)?torch[ =v]*(\d)\.(\d+)")


def engine_of_columns(names: Iterable[str]) -> tuple[str, str]:
    """Return the one engine that has some of a table's columns, and one of them; two empty words where none, or two."""
    found = {
        engine: name
        for name in names
        for engine, known in COLUMNS_OF.items()
        if letters(leaf_of(name)) in known or (engine == "maxtext" and is_axis(name))
    }
    (one,) = found.items() if len(found) == 1 else [("", "")]
    return one


def engine_beside(cells: Mapping[str, str]) -> tuple[str, str]:
    """Return the one engine that is named beside a row, and the word; two empty words where none, or two."""
    text = "; ".join(cells.get(column, "") for column in WRITTEN)
    found = {engine: said[0] for engine, pattern in WORDS_OF.items() if (said := pattern.search(text))}
    (one,) = found.items() if len(found) == 1 else [("", "")]
    return one


def with_year(cells: Mapping[str, str], assumed: list[str]) -> dict[str, str]:
    """Return the cells of a row with the year of the release of PyTorch that is named beside it.

    2.0 is of March 2023, 2.2 of January 2024 (pytorch/pytorch:RELEASE.md). Rows that name their year, or a stack, say
    more.
    """
    said = TORCH.search("; ".join(cells.get(column, "") for column in WRITTEN))
    known = find_stack(cells.get("family", "")) is not None
    if said is None or known or not is_empty(cells.get("year", "")):
        return dict(cells)
    release = int(said[1]), int(said[2])
    year = "2022" if release < (2, 0) else "2023" if release < (2, 2) else ""
    if not year:
        return dict(cells)
    assumed.append(f"year {year}, of {said[0]}")
    return {**cells, "year": year}


def engine_of_row(cells: Mapping[str, str], names: Sequence[str]) -> tuple[str, str]:
    """Return the engine of a row that names none, and why it is that; two empty words where nothing tells."""
    engine, word = engine_beside(cells)
    if engine:
        return engine, f"{word!r} stands beside it"
    engine, column = engine_of_columns(names)
    return engine, f"column {column} is its own" if engine else ""

"""Rows of a table of measured runs as inputs of the cost model; measured columns are kept apart from them."""

import csv
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ..errors import InputError
from ..files import read_text
from ..hardware import Accelerator, Catalogue, NodeType
from ..hardware.arithmetic import gpu_link, node_network_bytes_per_s
from ..layout import Layout
from ..workload.architecture import Architecture
from .cost.coefficients import GENERIC, STRANGERS, Book, Stack
from .cost.price import peak_flops_per_s

UNFUSED = re.compile(r"(no|without) flash|flash attention (was )?not used|unfused|megatron-deepspeed", re.IGNORECASE)
MAX_TABLE_BYTES = 64 * 2**20
PLACEHOLDERS = frozenset({"", "-", "na", "n/a", "nan", "none", "null", "unknown", "?"})


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One row: what was run where, with what is assumed where the row does not say."""

    id: str
    family: str
    stack: str  # whose constants apply; "" for none that is known
    accelerator: str
    node: str
    gpus: int
    gpus_per_node: int
    domain: int  # GPUs that reach each other over their own links
    link_bytes_per_s: float
    node_bytes_per_s: float
    architecture: Architecture
    layout: Layout
    shard: int  # ranks over which ZeRO-3 shards
    seq_len: int
    global_batch: int
    precision: str
    traits: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A row of the table: the run or the reason why it cannot be priced; what was measured, if anything."""

    id: str
    family: str
    run: Run | None = None
    reason: str | None = None
    measured_step_time_s: float | None = None
    measured_peak_memory_bytes: float | None = None


def read_rows(
    path: str | Path,
    catalogue: Catalogue,
    known: Book,
    models: Mapping[str, Architecture],
    *,
    strangers: bool = False,
) -> list[Row]:
    """Return the rows of a CSV file; with `strangers` as if no stack of it had been measured.

    Raises InputError where it is no table of runs.
    """
    book = msgspec.structs.replace(known, stacks={k: known.stacks[k] for k in STRANGERS}) if strangers else known
    text = read_text(path, max_bytes=MAX_TABLE_BYTES)
    try:
        table = csv.DictReader(text.lstrip("\ufeff").splitlines(), strict=True)
        names = table.fieldnames or []
        if not {"gpu", "num_gpus"} <= set(names):
            raise InputError(f"{path}: expected a table with the columns gpu and num_gpus in its first line")
        lines = list(table)
    except csv.Error as error:
        raise InputError(f"{path}: {error}") from None
    return [_row(line, number, catalogue, book, models) for number, line in enumerate(lines, 1)]


def _row(
    line: Mapping[str, Any], number: int, catalogue: Catalogue, known: Book, models: Mapping[str, Architecture]
) -> Row:
    cells = {key: (value or "").strip() for key, value in line.items() if isinstance(key, str) and not _list(value)}
    name, family = cells.get("id") or f"row-{number}", cells.get("family", "")
    run, reason = None, None
    try:
        run = _run(name, family, cells, catalogue, known, models)
    except InputError as error:
        reason = str(error)
    return Row(
        id=name,
        family=family,
        run=run,
        reason=reason,
        measured_step_time_s=_measured(cells, "step_time_s"),
        measured_peak_memory_bytes=_measured(cells, "peak_memory_bytes_per_gpu"),
    )


def _list(value: Any) -> bool:
    return isinstance(value, list)


def _run(
    name: str, family: str, cells: Mapping[str, str], catalogue: Catalogue, known: Book, models: Mapping[str, Any]
) -> Run:
    stack_name = family if family in known.stacks else _stranger(cells)
    stack = known.stacks.get(stack_name, GENERIC)
    key = accelerator_of(catalogue, _text(cells, "gpu"))
    accelerator = catalogue.accelerators[key]
    gpus = _count(cells, "num_gpus")
    node_name, node = _node(catalogue, key)
    per_node = _count(cells, "gpus_per_node", round(node.gpus.number) if node else 8)
    assumed: list[str] = []
    layout, shard = _layout(cells, stack, gpus, assumed)
    rate = _float(cells, "inter_node_Gbps_per_node")
    if rate is None:
        rate = node_network_bytes_per_s(catalogue, node) * 8e-9 if node else 3200.0
        if gpus > per_node:
            assumed.append(f"inter-node rate {rate:.0f} Gb/s a node")
    batch = _count(cells, "global_batch_sequences")
    if batch % (layout.dp * layout.mbs):
        raise InputError(f"global_batch_sequences: {batch} is not a multiple of dp x micro_batch")
    beside = "; ".join(cells.get(column, "") for column in ("model_name", "source", "notes"))
    trays = round(node.scale_up_nodes.number) if node and node.scale_up_nodes else 1
    precision = _text(cells, "precision", "bf16").lower()
    peak_flops_per_s(accelerator.peak_flops_per_s, precision, where=key)  # or say so
    return Run(
        id=name,
        family=family,
        stack=stack_name,
        accelerator=key,
        node=node_name,
        gpus=gpus,
        gpus_per_node=min(per_node, gpus),
        domain=per_node * trays,
        link_bytes_per_s=_link_rate(catalogue, accelerator, node),
        node_bytes_per_s=rate * 1e9 / 8 * min(1.0, gpus / per_node),
        architecture=_architecture(cells, models),
        layout=layout,
        shard=shard,
        seq_len=_count(cells, "seq_len"),
        global_batch=batch,
        precision=precision,
        traits=tuple(name for name, pattern in stack.traits.items() if re.search(pattern, beside)),
        assumed=tuple(assumed),
    )


def _stranger(cells: Mapping[str, str]) -> str:
    """Return the stack that a run of an unknown one is taken for: by its year and what is written beside it.

    Training in fp16 is taken for a sign of the time before fused attention.
    """
    year = _count(cells, "year", 2024)
    if year < 2023 or cells.get("precision", "").lower() == "fp16" or UNFUSED.search(cells.get("notes", "")):
        return STRANGERS[0]
    return STRANGERS[1] if year == 2023 else STRANGERS[2]


def _layout(cells: Mapping[str, str], stack: Stack, gpus: int, assumed: list[str]) -> tuple[Layout, int]:
    degrees = {name: _count(cells, name, 1) for name in ("tp", "pp", "vpp", "cp", "ep")}
    split = degrees["tp"] * degrees["pp"] * degrees["cp"]
    dp = _count(cells, "dp", max(1, gpus // split))
    if split * dp != gpus:
        raise InputError(f"tp x pp x cp x dp = {split * dp}, but num_gpus = {gpus}")
    if "micro_batch" not in cells or not cells["micro_batch"]:
        assumed.append("micro-batch 1")
    zero, shard = _zero(cells.get("zero_stage_fsdp", ""), stack, dp * degrees["cp"])
    recompute = _recompute(cells.get("recompute", ""), stack, assumed)
    sp = _count(cells, "seq_parallel", stack.sp, least=0) if degrees["tp"] > 1 else 0
    schedule = "interleaved" if degrees["vpp"] > 1 else "1f1b"
    if degrees["pp"] == 1:
        degrees["vpp"], schedule = 1, "1f1b"
    values = {**degrees, "dp": dp, "mbs": _count(cells, "micro_batch", 1), "zero": zero, "sp": min(sp, 1)}
    try:
        layout = msgspec.convert(values | {"schedule": schedule, "recompute": recompute}, Layout)
    except (msgspec.ValidationError, ValueError) as error:
        raise InputError(str(error)) from None
    return layout, shard


def _zero(text: str, stack: Stack, ranks: int) -> tuple[int, int]:
    """Return the stage and the ranks that share one copy of the parameters."""
    plain = text.lower()
    number = re.search(r"shard (\d+)", plain)
    if number:
        return 3, min(int(number.group(1)), ranks)
    if "hsdp" in plain or "hybrid" in plain:
        return 3, min(8, ranks)
    stage = re.search(r"zero-?(\d)", plain)
    if "fsdp" in plain:
        return 3, ranks
    if "distributed optimizer" in plain:
        return 1, ranks
    if stage:
        return min(int(stage.group(1)), 3), ranks
    if "none" in plain or plain in {"ddp", "0"}:
        return 0, ranks
    return stack.zero, ranks


def _recompute(text: str, stack: Stack, assumed: list[str]) -> str:
    plain = text.lower()
    for known in ("full", "selective", "none"):
        if known in plain:
            return known
    assumed.append(f"recompute {stack.recompute}")
    return stack.recompute


def _architecture(cells: Mapping[str, str], models: Mapping[str, Architecture]) -> Architecture:
    """Return the model of a row: by its numbers, or by its name where it gives none."""
    if not cells.get("hidden"):
        name = cells.get("model_name", "")
        found = find_model(name, models)
        if found is None:
            raise InputError(f"hidden: not stated, and no model {name!r} is known")
        layers = _count(cells, "layers", found.num_hidden_layers)
        return found.resized(num_hidden_layers=layers)
    hidden, heads = _count(cells, "hidden"), _count(cells, "heads")
    gated = _count(cells, "gated_mlp", 0, least=0) > 0
    config = {
        "vocab_size": _count(cells, "vocab", 51200),
        "hidden_size": hidden,
        "intermediate_size": _count(cells, "ffn_hidden", 4 * hidden),
        "num_hidden_layers": _count(cells, "layers"),
        "num_attention_heads": heads,
        "num_key_value_heads": _count(cells, "kv_heads", heads),
        "max_position_embeddings": _count(cells, "seq_len"),
        "model_type": "llama" if gated else "gpt2",
        "head_dim": -(-hidden // heads),
    }
    experts = {"experts": "num_experts", "top_k": "num_experts_per_tok", "expert_ffn": "moe_intermediate_size"}
    config |= {key: _count(cells, column) for column, key in experts.items() if cells.get(column)}
    tied = _count(cells, "tied", 0 if gated else 1, least=0) > 0
    return Architecture.from_sizes(
        {**config, "tie_word_embeddings": tied}, name=cells.get("model_name", ""), where="row"
    )


def find_model(name: str, models: Mapping[str, Architecture]) -> Architecture | None:
    """Return the model of the catalogue that a name in a table means: case, dashes and what is in brackets aside."""
    plain = _plain(name)
    return next((model for key, model in models.items() if _plain(key) == plain), None)


def _plain(name: str) -> str:
    return "".join(c for c in re.sub(r"\(.*?\)", "", name).lower() if c.isalnum())


def accelerator_of(catalogue: Catalogue, name: str) -> str:
    """Return the catalogue's key for a GPU as a table names it: "H100-80GB-SXM (DGX H100)", "GB200-NVL72"."""
    try:
        return catalogue.accelerator_key(name)
    except InputError:
        words = re.sub(r"\(.*?\)", " ", name.lower())
        chip = re.search(r"gb300|gb200|b300|b200|h800|h200|h100|a800|a100|v100|p100|mi300x|mi250x|gaudi ?2", words)
        if chip is None:
            raise
        stem = chip.group().replace(" ", "")
        size = re.search(r"(\d+) ?gb", words)
        keys = [key for key in catalogue.accelerators if key == stem or key.startswith(stem + "-")]
        sized = [key for key in keys if size and f"{size.group(1)}g" in key and ("pcie" in key) == ("pcie" in words)]
        if sized or stem in keys:
            return sized[0] if sized else stem
        return catalogue.accelerator_key(stem)


def _node(catalogue: Catalogue, accelerator: str) -> tuple[str, NodeType | None]:
    """Return the first node type of the catalogue with this accelerator, or with the same family of it."""
    family = accelerator.split("-")[0]
    exact = [key for key, node in catalogue.nodes.items() if node.accelerator == accelerator]
    related = [key for key, node in catalogue.nodes.items() if node.accelerator.split("-")[0] == family]
    for key in (*exact, *related):
        return key, catalogue.nodes[key]
    return "", None


def _link_rate(catalogue: Catalogue, accelerator: Accelerator, node: NodeType | None) -> float:
    if accelerator.link or node is None:
        return catalogue.interconnect(accelerator.link or accelerator.host_link).rate_bytes_per_s
    return gpu_link(catalogue, node).rate_bytes_per_s


def _measured(cells: Mapping[str, str], name: str) -> float | None:
    try:
        value = float(cells.get(name, ""))
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None


def _text(cells: Mapping[str, str], name: str, default: str | None = None) -> str:
    value = cells.get(name, "")
    if not value:
        if default is None:
            raise InputError(f"{name}: not stated")
        return default
    return value


def _float(cells: Mapping[str, str], name: str) -> float | None:
    value = cells.get(name, "")
    if value.lower() in PLACEHOLDERS:
        return None
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not 0 <= number < 1e15:
        raise InputError(f"{name}: expected a number of 0 or more, got {value!r}")
    return number


def _count(cells: Mapping[str, str], name: str, default: int | None = None, *, least: int = 1) -> int:
    value = _float(cells, name)
    if value is None:
        if default is None:
            raise InputError(f"{name}: not stated")
        return default
    if value != int(value) or value < least:
        raise InputError(f"{name}: expected a whole number of {least} or more, got {cells[name]!r}")
    return int(value)

"""The option of ours that means what another tool calls by a name of its own, for errors about unknown options."""

from collections.abc import Collection, Iterable

from ..layout_names import is_key, own_name

SIZES = {"batch-size", "gbs", "global-batch-size", "total-batch-size", "train-batch-size"}
LENGTHS = {"block-size", "context-length", "max-length", "max-seq-len", "max-seq-length", "seq-length"} | {
    "sequence-length",
    "seqlen",
}
COUNTS = {"gpus", "n-gpus", "ngpus", "nproc", "nproc-per-node", "num-gpus", "procs", "ranks", "workers", "world-size"}
FORMATS = {"amp", "bf16", "dtype", "fp16", "fp8", "mixed-precision", "torch-dtype"}
NODES = {"machines", "n-nodes", "nnodes", "nodes", "num-nodes"}
TEXTS = {"corpus", "data", "data-dir", "data-path", "dataset", "dataset-path", "input", "text", "train-data"}
OUTPUTS = {"o", "out", "outdir", "out-dir", "outfile", "output", "output-dir", "output-file", "save-dir"}

# option of ours: names of other tools for it, and what it says; the first that a command has counts
CALLED: tuple[tuple[str, Collection[str], str], ...] = (
    (
        "--cluster",
        {"accelerator", "device", "gpu", "gpu-model", "gpu-name", "gpu-type", "instance-type", "machine"},
        "says the machines: a node type, such as dgx-h100, or accelerators by their number, such as 8xH100",
    ),
    ("--global-batch", SIZES, "says the sequences of a step, over all GPUs"),
    ("--seq-len", LENGTHS, "says the tokens of a sequence"),
    ("--gpus", NODES, "says how many GPUs there are in all: nodes times the GPUs of one"),
    ("--gpus", COUNTS, "says how many there are in all"),
    ("--ranks", COUNTS, "says how many ranks there are"),
    ("--ranks-per-node", COUNTS, "says how many ranks a node has"),
    ("--precision", FORMATS, "says what products run in, such as bf16 or fp8"),
    ("--inter", {"bandwidth", "ib", "net", "network", "nic", "nic-rate"}, "says the rate of all NICs of a node"),
    ("--nic", {"bandwidth", "inter", "net", "network", "rate"}, "says the rate of each NIC, such as 1Gbps"),
    ("--measured", {"step-time", "step-time-s", "time"}, "says the seconds of a step that was measured"),
    ("--output", OUTPUTS, "says the file to write"),
    ("--run-dir", OUTPUTS, "says the folder of the run"),
    ("--save", OUTPUTS, "says the file to write"),
    ("--svg", OUTPUTS, "says the file of the drawing"),
    ("--json", {"format", "output-format"}, "prints JSON"),
)
LAYOUT_KEYS = {"cp", "dp", "ep", "mbs", "pp", "recompute", "tp", "zero"}  # and what `layout_names` has
LAYOUT = 'says how a step is split, such as "tp=8,dp=4,mbs=1,zero=1,recompute=full"'
# keys of a training job by what others call them
KEYS: tuple[tuple[str, Collection[str]], ...] = (
    ("data.paths", TEXTS),
    ("data.seq_len", LENGTHS | {"seq-len"}),
    ("launch.nodes", NODES),
    ("optimizer.learning_rate", {"lr"}),
    ("optimizer.max_grad_norm", {"clip-grad", "grad-clip", "max-norm"}),
    ("optimizer.warmup_steps", {"warmup"}),
    ("train.global_batch", SIZES | {"global-batch", "bs"}),
    ("train.checkpoint_every", {"checkpoint-interval", "save-every", "save-interval", "save-steps"}),
    ("train.precision", FORMATS),
    ("model.num_hidden_layers", {"layers", "num-layers", "n-layer", "n-layers"}),
)


def meant(typed: str, known: Collection[str]) -> str:
    """Return how what an unknown option means is said to a command with the `known` options; "" where nobody knows."""
    name = typed.lstrip("-").replace("_", "-")
    for ours, theirs, says in CALLED:
        if name in theirs and ours in known:
            return f"{ours} {says}"
    if (name in LAYOUT_KEYS or is_key(name)) and "--layout" in known:
        key = own_name(name)
        return f"--layout {LAYOUT}{f': here {key}' if key else ''}"
    return _of_a_job(name) if "--print-config" in known else ""


def _of_a_job(name: str) -> str:
    """Return how `train` takes what a name means: as a key of its configuration, or as the configuration itself."""
    if name in {"c", "config", "config-file", "job-file"}:
        return "The configuration goes without an option, such as: train job.toml"
    if name in {"m", "model", "model-name"}:
        return (
            "A decoder's sizes are keys of a section: --set model.KEY=VALUE says one (--print-config shows every key)"
        )
    key = next((ours for ours, theirs in KEYS if name in theirs), None) or _leaf(name.replace("-", "_"), _keys())
    return f"--set {key}=VALUE says it (--print-config shows every key)" if key else ""


def _keys() -> Iterable[str]:
    import msgspec

    from ..train.job.config import JobConfig

    return (f"{section}.{key}" for section, keys in msgspec.to_builtins(JobConfig()).items() for key in keys)


def _leaf(name: str, keys: Iterable[str]) -> str | None:
    """Return the one key whose last word is `name`; None where there is none, or are several."""
    found = [key for key in keys if key.partition(".")[2] == name]
    return found[0] if len(found) == 1 else None

"""Pictures that are drawn when the site is built, by the commands that a reader would use."""

import json
import tempfile
from pathlib import Path

from docsite.box import output_of

SMALL = {  # keys of a Hugging Face config.json
    "model_type": "llama", "vocab_size": 256, "hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "tie_word_embeddings": False,
}  # fmt: skip
STEP = (
    "meshwright plan --model config.json --cluster dgx-a100-80g --gpus 8 --global-batch 8 --seq-len 128 "
    "--layout tp=2,pp=2,dp=2 --graph step.svg"
)


def step_picture() -> str:
    """Return the operators of one step of a small decoder by rank, as SVG."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(SMALL))
        output_of(STEP, Path(folder))
        return (Path(folder) / "step.svg").read_text()

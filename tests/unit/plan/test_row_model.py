"""The model of a row of a table."""

from pathlib import Path

from meshwright.plan.row_model import row_architecture
from meshwright.workload.models import load_model


def test_a_model_cut_to_fewer_layers_says_how_many_of_them_have_no_experts():
    assumed: list[str] = []
    known = {"deepseek-v3": load_model("deepseek-v3").architecture}

    found = row_architecture({"model_name": "deepseek-v3", "layers": "4"}, known, Path(), assumed)

    assert found.num_hidden_layers == 4
    assert assumed == ["3 of the 4 layers of deepseek-v3 without experts (dense_layers says it)"]

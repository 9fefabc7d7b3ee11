"""The flight on one GPU, as far as it needs no device."""

import json
import tomllib

from benchmarks import gpu


def test_the_curves_of_a_device_are_read_back_as_they_were_measured():
    products = [{"m": 64, "k": 64, "n": 64, "dtype": "bfloat16", "time_s": 2.5e-05, "flops_per_s": 2.1e10}]
    copies = [{"bytes": 16384, "time_s": 1e-06, "copy_bytes_per_s": 1.6e10}] * 2

    found = tomllib.loads(gpu.curves_toml('A "new" GPU', products, copies, "this test"))

    assert found == {"device": 'A "new" GPU', "source": "this test", "products": products, "copies": copies}


def test_a_part_that_fails_stops_no_other_and_what_each_said_is_saved(monkeypatch, tmp_path):
    def fails(flight, left_s):
        raise gpu.Failed("no bytes came")

    parts = {"first": fails, "second": lambda flight, left_s: [{"quantity": "x", "value": 1}]}
    monkeypatch.setattr(gpu, "PARTS", parts)

    found = gpu.run(["--parts", "first,second", "--to", str(tmp_path)])

    assert [row["part"] for row in found.rows] == ["first", "second"]
    assert "no bytes came" in found.rows[0]["remark"]
    assert json.loads((tmp_path / "second.rows.json").read_text()) == [{"part": "second", "quantity": "x", "value": 1}]

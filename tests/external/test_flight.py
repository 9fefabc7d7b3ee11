"""The flight on one GPU, all of its parts on the fake device: a program that has run before somebody needs it."""

import tomllib

import pytest

from benchmarks import gpu


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("part", gpu.PARTS)
def test_a_part_of_the_flight_ends_on_the_fake_device(part, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu.device, "count", lambda: 0)

    found = gpu.run(["--parts", part, "--to", str(tmp_path), "--minutes", "20"]).rows

    assert [row["part"] for row in found] == [part]
    remark = found[0]["remark"]
    assert remark.startswith("not measured: no GPU; its program ran") or "accelerate" in remark, remark
    if part == "compute":
        curves = tomllib.loads((tmp_path / "curves.toml").read_text())
        assert curves["device"] == "Fake H100"
        assert curves["products"]
        assert curves["copies"]

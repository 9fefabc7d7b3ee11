import pytest

from meshwright.bench.judgement.spec import memory_spec
from meshwright.bench.judgement.verdict import Spec, compute_verdict, sweep_verdict, verdict
from meshwright.bench.table import Row
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()
NVLINK3 = CATALOGUE.interconnect("nvlink-3")
A100 = Spec(name="NVLink 3", bytes_per_s=300e9, link=NVLINK3, slower=(("PCIe 4 x16", 31e9),))


def test_a_good_rate_has_no_trap():
    found = verdict(235e9, A100)

    assert found.percent == pytest.approx(78.3, abs=0.1)
    assert found.trap is None
    assert "expected 80 to 90 %" in found.text


@pytest.mark.parametrize(
    ("measured", "spec", "bound", "words"),
    [
        (235e9, Spec(name="NVLink 3", bytes_per_s=600e9, link=NVLINK3), True, "duplex figure of NVLink 3"),
        (24e9, A100, True, "PCIe 4"),
        (480e9, Spec(name="NVLink 4", bytes_per_s=450e9, reduces_in_switch=True), True, "the switch reduces"),
        (480e9, Spec(name="NVLink 4", bytes_per_s=450e9), True, "above the spec"),
        (23e9, Spec(name="8 x HDR", bytes_per_s=200e9, nics=8), True, "1 of the 8 NICs"),
        (150e9, Spec(name="x", bytes_per_s=300e9), True, "near half"),
        (195e9, Spec(name="x", bytes_per_s=300e9), False, "not bound"),
        (60e9, Spec(name="x", bytes_per_s=300e9), True, "other jobs"),
    ],
)
def test_the_trap_that_fits_is_named(measured, spec, bound, words):
    assert words in verdict(measured, spec, bound=bound).trap


def test_half_of_a_compute_peak_points_at_sparsity():
    assert "sparsity" in compute_verdict(470e12, 989e12, "H100").trap
    assert compute_verdict(790e12, 989e12, "H100").trap is None


def _sums(*sizes_and_times):
    return [
        Row(collective="all_reduce", backend="gloo", ranks=2, bytes=size, time_s=time_s)
        for size, time_s in sizes_and_times
    ]


def test_what_a_buffer_takes_of_small_payloads_is_not_the_rate_of_the_link():
    nic = Spec(name="the NIC", bytes_per_s=125e6)

    found = sweep_verdict(_sums((2**17, 0.75e-3), (2**20, 9.12e-3)), nic)

    assert found.percent == pytest.approx(92, abs=0.1)
    assert found.trap is None
    assert found.text.endswith("at 1 MiB; the 0.175 GB/s of 128 KiB are what buffers or caches take, not what the link "
                               "carries")  # fmt: skip


def test_a_sweep_whose_largest_size_surpasses_the_spec_too_is_of_another_link():
    found = sweep_verdict(_sums((2**17, 0.75e-3), (2**20, 6e-3)), Spec(name="the NIC", bytes_per_s=125e6))

    assert "another part's" in found.trap


def test_a_sweep_within_the_spec_is_judged_by_its_best_size():
    found = sweep_verdict(_sums((2**20, 9e-3), (2**24, 170e-3)), Spec(name="the NIC", bytes_per_s=125e6))

    assert found.percent == pytest.approx(93.2, abs=0.1)


def test_half_of_what_was_measured_beside_it_is_no_duplex_figure():
    assert "duplex" not in verdict(0.9e9, memory_spec(1.7e9, "meshwright")).trap

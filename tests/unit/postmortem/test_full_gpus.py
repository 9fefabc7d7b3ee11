"""Errors of a full GPU: what they tell besides its size, and what would then help."""

from .made import judge

FULL = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of"
OWN = "Including non-PyTorch memory, this process has {} memory in use. Of the allocated memory {} is allocated by"
LEFT = " PyTorch, and {} is reserved by PyTorch but unallocated."


def full(others="", own="70.00 GiB", allocated="68.00 GiB", left="0.50 GiB"):
    return [f"{FULL} 79.10 GiB of which 1.00 GiB is free. {others}{OWN.format(own, allocated)}{LEFT.format(left)}"]


def test_another_process_that_holds_what_was_lacking_is_named_before_the_batch(tmp_path):
    verdict = judge(tmp_path, full("Process 812 has 31.00 GiB memory in use. ", "40.00 GiB", "38.00 GiB"))

    assert (verdict.kind, verdict.blamed) == ("device_memory", (1,))
    assert verdict.because.endswith("others hold memory of that GPU: process 812 (31.00 GiB)")
    assert "nvidia-smi" in verdict.next[0]
    assert not any("lower the batch" in step for step in verdict.next)


def test_of_many_processes_the_largest_are_told(tmp_path):
    others = "".join(f"Process {pid} has {pid}.00 MiB memory in use. " for pid in (401, 405, 402, 404, 403))

    because = judge(tmp_path, full(others)).because

    assert because.endswith("process 405 (405.00 MiB), process 404 (404.00 MiB), process 403 (403.00 MiB) and 2 more")


def test_others_that_hold_less_than_was_lacking_are_no_reason(tmp_path):
    verdict = judge(tmp_path, full("Process 812 has 500.00 MiB memory in use. "))

    assert verdict.because == "out of GPU memory: 2.00 GiB wanted, 1.00 GiB free"
    assert "lower the batch" in verdict.next[0]


def test_what_lies_fragmented_is_told_with_its_remedy(tmp_path):
    verdict = judge(tmp_path, full(left="14.25 GiB"))

    assert "14.25 GiB reserved by PyTorch but unallocated" in verdict.because
    assert "expandable_segments:True" in verdict.next[0]


def test_older_words_of_torch_tell_it_by_a_difference(tmp_path):
    text = (
        "[rank1]: RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 1; 79.10 GiB total capacity; 50.50"
    )
    text += " GiB already allocated; 1.00 GiB free; 70.75 GiB reserved in total by PyTorch)"

    assert "20.25 GiB reserved by PyTorch but unallocated" in judge(tmp_path, [text]).because


def test_xla_tells_what_it_wanted_of_a_chip(tmp_path):
    text = "[rank1]: jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Attempting to reserve 3.50G at the"
    text += " bottom of memory. That was not possible."
    text += " There are 1.25G free, 0B reserved, and 1.25G reservable. (1x0x0_HBM0)"

    assert judge(tmp_path, [text]).because.startswith("out of TPU memory: 3.50G wanted, 1.25G free")

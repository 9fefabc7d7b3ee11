"""A layer of experts on one rank."""

import torch

from meshwright.parallel.spmd.experts import Bank, EvenBank, ExpertNetwork


def test_experts_return_what_they_were_given_under_autocast():
    torch.manual_seed(0)
    layer = ExpertNetwork(8, 16, experts=4, per_token=2)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    rows = torch.randn(2, 3, 8)

    whole = layer(rows)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = layer(rows)

    assert half.dtype == torch.float32
    assert torch.allclose(half, whole, atol=0.05)


def test_experts_with_as_many_rows_each_return_what_one_product_for_all_of_them_returns():
    torch.manual_seed(0)
    bank, even = Bank(8, 16, 4), EvenBank(8, 16, 4)
    for parameter in bank.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    even.load_state_dict(bank.state_dict())
    rows = torch.randn(11, 8)  # the last expert has two

    assert torch.allclose(even(rows, torch.tensor([])), bank(rows, torch.tensor([3, 3, 3, 2])), atol=1e-6)

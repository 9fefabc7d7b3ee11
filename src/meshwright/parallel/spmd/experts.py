"""A layer of experts, whole or spread over the ranks of ep: rows travel to the ranks of their experts and back.

Each row is routed to the `per_token` experts of highest router probability, whose outputs are added with those
probabilities over their sum (Mixtral: Jiang et al. 2024, arXiv 2401.04088). No row is dropped, whatever the load.

Shapes: N rows, K experts per row, E experts, L of them on this rank, C features, I inner features.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...errors import InputError
from ...workload.functional import swiglu
from ..shard_placement import ShardPlacement, runs, shard_of
from .channel import AxisChannel, exchanged
from .tensor import Parameters, Rule, Seam, replace_parameter


class ExpertNetwork(nn.Module):
    """A SwiGLU network in which every row passes through `per_token` of `experts` experts."""

    def __init__(self, hidden: int, inner: int, *, experts: int, per_token: int) -> None:
        super().__init__()
        self.per_token = per_token
        self.router = nn.Linear(hidden, experts, bias=False)
        self.bank = Bank(hidden, inner, experts)

    def split_rules(self) -> dict[str, Rule]:
        """Return how tensor parallelism cuts the experts: each as a dense network; the router stays whole."""
        inner = self.bank.down.shape[2]
        return {"bank": Parameters((("gate_up", 1, (inner, inner)), ("down", 2, (inner,))))}

    def forward(self, x_BTC: Tensor) -> Tensor:
        """Return the weighted outputs of each row's experts."""
        weights_BTK, chosen_BTK = self.router(x_BTC).softmax(-1).topk(self.per_token, -1)
        weights_BTK = weights_BTK / weights_BTK.sum(-1, keepdim=True)
        seam = self.bank.seam
        if seam is None:
            return self._mixed(x_BTC, weights_BTK, chosen_BTK)
        return seam.leave(self._mixed(seam.enter(x_BTC), seam.enter(weights_BTK), seam.whole(chosen_BTK)))

    def _mixed(self, x_BTC: Tensor, weights_BTK: Tensor, chosen_BTK: Tensor) -> Tensor:
        x_NC, chosen = x_BTC.flatten(0, -2), chosen_BTK.flatten()
        order = chosen.argsort(stable=True)
        row = order // self.per_token
        y = self.bank(x_NC[row], self.bank.rows_of_experts(chosen))
        weighted = (y * weights_BTK.flatten()[order, None]).to(x_NC.dtype)  # under autocast y is narrower than x
        return torch.zeros_like(x_NC).index_add(0, row, weighted).view_as(x_BTC)


class Bank(nn.Module):
    """The experts themselves, all of them or those of this rank."""

    def __init__(self, hidden: int, inner: int, experts: int) -> None:
        super().__init__()
        self.experts = experts
        self.gate_up = nn.Parameter(torch.empty(experts, 2 * inner, hidden))
        self.down = nn.Parameter(torch.empty(experts, hidden, inner))
        self.seam: Seam | None = None  # of tensor parallelism
        self.channel: AxisChannel | None = None  # of expert parallelism

    def forward(self, rows: Tensor, counts_E: Tensor) -> Tensor:
        """Return each row's expert's output; rows are sorted by expert, `counts_E` of them for each."""
        channel = self.channel
        if channel is None or channel.size == 1:
            return self._applied(rows, counts_E.tolist())
        every = [1] * channel.size
        counts_PL = counts_E.view(channel.size, -1)
        came_PL = channel.all_to_all(counts_PL, every, every)
        sent, received = counts_PL.sum(1).tolist(), came_PL.sum(1).tolist()
        arrived = exchanged(rows, channel, sent, received)  # by rank, then by expert
        expert = torch.arange(came_PL.shape[1]).repeat(channel.size).repeat_interleave(came_PL.flatten().cpu())
        order = expert.argsort(stable=True).to(rows.device)
        y = self._applied(arrived[order], came_PL.sum(0).tolist())
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order), device=order.device)
        return exchanged(y[back], channel, received, sent)

    def rows_of_experts(self, chosen: Tensor) -> Tensor:
        """Return how many rows go to each expert."""
        return torch.bincount(chosen, minlength=self.experts)

    def _applied(self, rows: Tensor, counts_L: list[int]) -> Tensor:
        parts = zip(torch.split(rows, counts_L), self.gate_up, self.down, strict=True)
        return torch.cat([F.linear(swiglu(F.linear(part, gate_up)), down) for part, gate_up, down in parts])


class EvenBank(Bank):
    """Experts that each get as many rows as the others: for a graph, which is captured before any row is routed.

    One product for all of them has the operators of each, and their shapes do not depend on what a router chose.
    """

    def rows_of_experts(self, chosen: Tensor) -> Tensor:
        """Return the same number for each expert, the last rows of some being filled up."""
        return chosen.new_full((self.experts,), -(-chosen.numel() // self.experts))

    def forward(self, rows: Tensor, counts_E: Tensor) -> Tensor:
        """Return each row's expert's output."""
        count = len(rows)
        padded = F.pad(rows, (0, 0, 0, -count % self.experts)).view(self.experts, -1, rows.shape[-1])
        inner = swiglu(torch.bmm(padded, self.gate_up.transpose(1, 2)))
        return torch.bmm(inner, self.down.transpose(1, 2)).flatten(0, 1)[:count]


def split_experts(
    module: nn.Module, channel: AxisChannel, placements: dict[nn.Parameter, ShardPlacement]
) -> dict[nn.Parameter, ShardPlacement]:
    """Keep this rank's experts of every bank; return the placements after it."""
    for layer in [layer for layer in module.modules() if isinstance(layer, Bank)]:
        if layer.experts % channel.size:
            raise InputError(f"ep: {channel.size} does not divide the {layer.experts} experts")
        layer.channel = channel
        held = runs((layer.experts,), channel.index, channel.size)
        for whole in (layer.gate_up, layer.down):
            piece = nn.Parameter(shard_of(whole.detach(), 0, held))
            placements[piece] = placements[whole].and_cut(0, held)._replace(expert=True)
            replace_parameter(module, whole, piece)
    return {parameter: placements[parameter] for parameter in module.parameters()}

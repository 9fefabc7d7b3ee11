"""The feed of a rank: micro-batches for training and test that depend on seed and step alone."""

import os
import time
from collections.abc import Iterator

import torch

from ...errors import InputError
from ...layout import Plan
from ...parallel.engine import Batch
from ..job.config import JobConfig
from ..measure.recorder import Recorder
from .corpus import Corpus, Sampler, validation_sequences

NOT_COUNTED = -100  # as a target: what PyTorch's losses leave out
PAUSE_VARIABLE = "MESHWRIGHT_PAUSE"  # "RANK:SECONDS,...": these ranks sleep in every step, to try stragglers out


class Feed:
    """The data of a job, cut for any rank."""

    def __init__(
        self, config: JobConfig, plan: Plan, corpus: Corpus, recorder: Recorder, *, rank: int, device: torch.device
    ) -> None:
        self._config, self._plan, self._recorder, self._device = config, plan, recorder, device
        seq_len = config.data.seq_len
        self._sampler = Sampler(corpus.train, seq_len=seq_len, seed=config.train.seed)
        held_out = validation_sequences(corpus.validation, seq_len=seq_len, count=config.data.validation_sequences)
        self.held_out = torch.from_numpy(held_out)
        self._pause_s = pauses(os.environ.get(PAUSE_VARIABLE, "")).get(rank, 0.0)

    def batches(self, step: int, data_rank: int, data_ranks: int) -> Iterator[Batch]:
        """Draw the micro-batches of one of the `data_ranks` shares of a step."""
        size = self._plan.layout.mbs
        time.sleep(self._pause_s)
        for index in range(self._plan.micro_batches):
            with self._recorder.span("data", "data"):
                first = step * self._config.train.global_batch
                first += (index * data_ranks + data_rank) * size
                drawn = torch.from_numpy(self._sampler.sequences(range(first, first + size))).to(self._device)
            yield drawn[:, :-1], drawn[:, 1:]

    def held_out_batches(self, part: int, parts: int) -> Iterator[Batch]:
        """Cut a part of the held-out sequences into micro-batches, equally many in every part.

        Where sequences are lacking, others stand in their place with targets that are not counted.
        """
        size = self._plan.layout.mbs
        share = self.held_out[part::parts]
        largest_share = -(-len(self.held_out) // parts)
        for first in range(0, largest_share, size):
            batch = share[first : first + size]
            targets = torch.full((size, self.held_out.shape[1] - 1), NOT_COUNTED)
            targets[: len(batch)] = batch[:, 1:]
            filled = torch.cat((batch, self.held_out[:1].expand(size - len(batch), -1)))
            yield filled[:, :-1].to(self._device), targets.to(self._device)


def pauses(text: str) -> dict[int, float]:
    """Return the seconds by rank of "0:0.1,3:0.3"; InputError where it is not of that form."""
    found = {}
    for part in filter(None, text.split(",")):
        rank, colon, seconds = part.partition(":")
        try:
            found[int(rank)] = float(seconds)
        except ValueError:
            colon = ""
        if not colon or found[int(rank)] < 0:
            raise InputError(f"{PAUSE_VARIABLE}={text}: expected RANK:SECONDS, such as 3:0.2")
    return found

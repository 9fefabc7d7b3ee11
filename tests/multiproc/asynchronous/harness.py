"""A run in one process: servers and workers are threads that talk over loopback; and synchronous training beside it."""

import contextlib
import threading

import torch
from torch import nn

from meshwright.parallel.asynchronous.client import Client
from meshwright.parallel.asynchronous.connection import ConnectionLost, connect
from meshwright.parallel.asynchronous.coordinator import Coordinator, RunTerms
from meshwright.parallel.asynchronous.pieces import ServerPiece, cut_pieces
from meshwright.parallel.asynchronous.server import Listener
from meshwright.parallel.asynchronous.server_group import LocalServer, ServerGroup, ServerShard
from meshwright.parallel.asynchronous.worker import GradientWorker, Island, LocalWorker, WorkerTerms

WORD = "a word"
WORKERS, STEPS, SHARE = 4, 20, 3  # tokens of a share


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 1)).double()


def data(share: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs, and what a teacher that can be learnt says of them."""
    generator = torch.Generator().manual_seed(share)
    inputs = torch.randn(SHARE, 6, generator=generator, dtype=torch.float64)
    return inputs, inputs.sum(1, keepdim=True)


def summed_loss(module: nn.Module, share: int) -> torch.Tensor:
    inputs, targets = data(share)
    return (module(inputs) - targets).square().sum()


def synchronous_losses(optimizer, *, max_norm: float = 0.0) -> list[float]:
    """Train on the global batch in one process: the oracle."""
    module = model()
    update = optimizer(module)
    losses = []
    for step in range(STEPS):
        update.zero_grad()
        shares = [summed_loss(module, step * WORKERS + rank) for rank in range(WORKERS)]
        total = sum(shares) / (WORKERS * SHARE)
        total.backward()
        if max_norm:
            nn.utils.clip_grad_norm_(module.parameters(), max_norm)
        update.step()
        losses.append(total.item())
    return losses


class ToyTask:
    """The task of a worker: toy data; `local` steps with plain SGD, otherwise only gradients. Hooks are for faults."""

    def __init__(self, *, local_rate: float | None, scale: float, before_share=lambda share: None) -> None:
        self.module = model()
        self.parameters = list(self.module.parameters())
        self._local_rate, self._scale, self._before = local_rate, scale, before_share

    def train(self, share: int) -> tuple[float, float]:
        self._before(share)
        self.module.zero_grad()
        loss = summed_loss(self.module, share)
        (loss / self._scale).backward()
        if self._local_rate is not None:
            with torch.no_grad():
                for parameter in self.parameters:
                    parameter -= self._local_rate * parameter.grad
        return loss.item(), 0.0

    def evaluate(self, part: int, parts: int) -> float:
        with torch.no_grad():
            return sum(summed_loss(self.module, 10_000 + i).item() for i in range(part, 8, parts))

    def record(self) -> str:
        return "{}"

    def note(self, name: str, start_s: float, end_s: float, size_bytes: int = 0) -> None:
        assert end_s >= start_s

    def end(self, share: int) -> None:
        pass


class Run:
    """Servers and what they have said; a context manager that ends them."""

    def __init__(self, optimizer, *, servers=1, fragments=1, wire="full", rate=0.1, published=False, **terms) -> None:
        module = model()
        names, tensors = zip(*module.named_parameters(), strict=True)
        pieces = cut_pieces([t.numel() for t in tensors], fragments, servers)
        self.rows, self.changes, self.saved = [], [], []
        self.wire, self.fragments = wire, fragments
        self.gradients = terms.get("gradients", True)
        self.listeners = []
        for server in range(servers):
            mine = {
                p: ServerPiece(
                    [names[i] for i in r], [tensors[i] for i in r], optimizer, wire=wire, published=published
                )
                for p, r in enumerate(pieces)
                if p % servers == server
            }
            self.listeners.append(Listener("127.0.0.1", WORD, ServerShard(mine)))
        for listener in self.listeners[1:]:
            listener.start()
        self.others = [connect(listener.address, WORD) for listener in self.listeners[1:]]
        bank = ServerGroup([LocalServer(self.listeners[0].vault), *self.others], fragments, torch.float64)
        defaults = {
            "workers": WORKERS, "steps": STEPS, "tokens_per_share": SHARE, "shares_per_lease": 1, "together": True,
            "validate_every": 10, "checkpoint_every": 10, "silence_s": 5.0, "patience_s": 5.0,
        }  # fmt: skip
        self.coordinator = Coordinator(
            RunTerms(**(defaults | terms)),
            bank,
            first_step=0,
            rate=lambda step: rate,
            write=self.rows.append,
            save=lambda step: self.saved.append((step, bank.state())),
            changed=self.changes.append,
        )
        self.listeners[0].coordinator = self.coordinator
        self.listeners[0].start()
        self.threads: list[threading.Thread] = []
        self.clients: dict[int, Client] = {}
        self.problems: list[BaseException] = []

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: object) -> None:
        for end in (*self.others, *self.listeners):
            end.close()
        for thread in self.threads:
            thread.join(5)

    def start(self, rank: int, *, stream: bool = False, before_share=lambda share: None) -> None:
        """Start a worker."""
        terms = WorkerTerms(fragments=self.fragments, wire=self.wire, stream=stream, tokens_per_share=SHARE)
        thread = threading.Thread(target=self._work, args=(rank, terms, before_share), daemon=True)
        self.threads.append(thread)
        thread.start()

    def finish(self, timeout_s: float = 100.0) -> None:
        """Wait until every worker has ended."""
        while not self.coordinator.wait(lambda: self.coordinator.finished, 0.05):
            self.coordinator.tick()
            timeout_s -= 0.05
            assert timeout_s > 0, "the run does not end"
            assert self.coordinator.problem is None, self.coordinator.problem
        for thread in self.threads:
            thread.join(timeout_s)
        assert not self.problems, self.problems

    def only_one_works(self) -> bool:
        """Return whether all but one wait until its share is in the weights."""
        with self.coordinator._state:
            under_way = sum(map(len, self.coordinator.leases._out.values()))
            return under_way == 1 and self.coordinator._must_wait()

    def kill(self, rank: int) -> None:
        """Cut a worker off, as its death would."""
        self.clients[rank].close()

    def losses(self) -> list[float]:
        return [row["loss"] for row in self.rows]

    def _work(self, rank, terms, before_share) -> None:
        local_rate = None if self.gradients else 0.1
        scale = WORKERS * SHARE if self.gradients and self.coordinator.terms.together else SHARE
        task = ToyTask(local_rate=local_rate, scale=scale, before_share=before_share)
        client = Client([listener.address for listener in self.listeners], WORD, self.coordinator.terms.silence_s)
        self.clients[rank] = client
        kind = GradientWorker if self.gradients else LocalWorker
        try:
            with contextlib.suppress(ConnectionLost):  # it was killed
                kind(task, client, terms, rank=rank, island=Island()).run()
        except BaseException as error:
            self.problems.append(error)
        finally:
            client.close()

"""Exchanges over TCP with and without the C helper, and between one that has it and one that has not."""

import contextlib
import itertools
import threading
import time

import pytest
import torch
import torch.distributed as dist

from meshwright.backend.wire.executor_reduce import add, wire_reduction
from meshwright.backend.wire.stream import MOST, STAGE_BYTES, load_stream, rounded_to_wire
from meshwright.backend.wire.transport import Incoming, Outgoing, TransportError
from meshwright.backend.wire.transport_stream import CHECK, HEADER
from meshwright.backend.wire.transport_tcp import TcpTransport

WAYS = pytest.mark.parametrize("helpers", list(itertools.product((True, False), repeat=2)), ids=str)
HELPED = pytest.mark.parametrize("helped", [True, False], ids=["helper", "python"])


@contextlib.contextmanager
def transports(monkeypatch, helpers, timeout_s=20.0, crowded=False):
    """Yield one transport a rank, each with or without the helper; `crowded`: more ranks than processors."""
    store, met = dist.HashStore(), [None] * len(helpers)

    def meet(rank):
        met[rank] = TcpTransport(store, rank, len(helpers), timeout_s=timeout_s, crowded=crowded)

    threads = []
    for rank, helped in enumerate(helpers):  # a lower rank is asked for its address, whenever it comes
        monkeypatch.setenv("MESHWRIGHT_HELPER", str(int(helped)))
        assert (load_stream() is not None) == helped
        threads.append(threading.Thread(target=meet, args=(rank,)))
        threads[-1].start()
        if rank < len(helpers) - 1:
            store.get(f"meshwright/{rank}")  # it has looked at the setting by then
    for thread in threads:
        thread.join()
    monkeypatch.delenv("MESHWRIGHT_HELPER")
    try:
        yield met
    finally:
        for transport in met:
            transport.close()


def at_once(*calls):
    """Run each call on a thread of its own; return what each raised, or None."""
    raised = [None] * len(calls)

    def run(number, call):
        try:
            call()
        except TransportError as error:
            raised[number] = str(error)

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def random(count, dtype=torch.float32, seed=0):
    return torch.randn(count, generator=torch.Generator().manual_seed(seed)).to(dtype)


@WAYS
@pytest.mark.parametrize(
    ("wire", "home", "combine"),
    [
        (torch.float32, torch.float32, None),
        (torch.float32, torch.float32, add),
        (torch.float64, torch.float64, add),
        (torch.bfloat16, torch.float32, add),
        (torch.bfloat16, torch.float32, None),
        (torch.float16, torch.float32, add),
        (torch.float32, torch.float32, wire_reduction("product", torch.float32).combine),
        (torch.bfloat16, torch.bfloat16, add),
    ],
)
@pytest.mark.parametrize("count", [0, 1, 13, 3 * STAGE_BYTES // 4 + 5])
def test_what_comes_in_is_stored_or_reduced_alike(monkeypatch, helpers, wire, home, combine, count):
    sent = [random(count, wire, seed=rank) for rank in range(2)]
    before = [random(count, home, seed=rank + 7) for rank in range(2)]
    got = [tensor.clone() for tensor in before]

    with transports(monkeypatch, helpers) as ends:
        raised = at_once(
            *(
                lambda me=me: ends[me].exchange(
                    [Outgoing(1 - me, sent[me])], [Incoming(1 - me, got[me], combine, wire)]
                )
                for me in range(2)
            )
        )

    assert raised == [None, None]
    for me in range(2):
        want = before[me].clone()
        combine(want, sent[1 - me]) if combine else want.copy_(sent[1 - me])
        assert torch.equal(got[me], want)


@HELPED
def test_messages_to_one_peer_keep_their_order_and_sums_theirs(monkeypatch, helped):
    """Rank 1 sends late, and is added first all the same."""
    parts = [torch.tensor([1e8, 1.0, -1e8]), torch.tensor([1.0, 1e-8, 1.0])]
    total, text = torch.tensor([-1e8, 0.0, 1e8]), torch.zeros(4)

    with transports(monkeypatch, (helped,) * 3) as ends:
        receives = [Incoming(1, text), Incoming(1, total, add), Incoming(2, total, add, after=(1,))]

        def late():
            time.sleep(0.05)
            ends[1].exchange([Outgoing(0, torch.arange(4.0)), Outgoing(0, parts[0])], [])

        raised = at_once(
            lambda: ends[0].exchange([], receives), late, lambda: ends[2].exchange([Outgoing(0, parts[1])], [])
        )

    assert raised == [None] * 3
    assert text.tolist() == [0, 1, 2, 3]
    assert torch.equal(total, (torch.tensor([-1e8, 0.0, 1e8]) + parts[0]) + parts[1])


@HELPED
@pytest.mark.parametrize("late", [0, 1, 2])
@pytest.mark.parametrize("wire", [torch.float32, torch.float64, torch.bfloat16])
def test_every_element_of_a_long_sum_is_added_in_the_order_of_the_messages(monkeypatch, helped, wire, late):
    home = torch.float64 if wire == torch.float64 else torch.float32
    count = 3 * STAGE_BYTES // 4 + 5
    parts = [random(count, wire, seed=i) * 10.0**i for i in range(3)]
    total = random(count, home, seed=7)
    want = total.clone()
    for part in parts:
        want += part

    with transports(monkeypatch, (helped,) * 4) as ends:
        receives = [Incoming(1 + i, total, add, wire, after=tuple(range(i))) for i in range(3)]

        nexts = [torch.empty(1) for _ in range(3)]

        def send(i):
            time.sleep(0.03 * (i == late))
            ends[1 + i].exchange([Outgoing(0, parts[i])], [])
            ends[1 + i].exchange([Outgoing(0, torch.ones(1))], [])  # lies there while others are still added

        def receive():
            ends[0].exchange([], receives)
            ends[0].exchange([], [Incoming(1 + i, nexts[i]) for i in range(3)])

        raised = at_once(receive, *(lambda i=i: send(i) for i in range(3)))

    assert raised == [None] * 4
    assert torch.equal(total, want)
    assert nexts == [torch.ones(1)] * 3


@HELPED
def test_more_messages_than_the_helper_takes_arrive_too(monkeypatch, helped):
    got = [torch.zeros(3) for _ in range(MOST + 1)]
    with transports(monkeypatch, (helped, helped)) as ends:
        sends = [Outgoing(1, torch.full((3,), float(i))) for i in range(len(got))]
        raised = at_once(
            lambda: ends[0].exchange(sends, []), lambda: ends[1].exchange([], [Incoming(0, one) for one in got])
        )
    assert raised == [None, None]
    assert [one.tolist() for one in got] == [[i] * 3 for i in range(len(got))]


@HELPED
@pytest.mark.parametrize(
    ("header", "message"),
    [
        (HEADER.pack(12, CHECK), "rank 0 sent 12 B where rank 1 expects 16 B"),
        (HEADER.pack(16, CHECK ^ 1), "rank 1: the stream from rank 0 is out of step"),
    ],
)
def test_a_message_that_is_not_the_one_expected_is_refused(monkeypatch, helped, header, message):
    with transports(monkeypatch, (helped, helped)) as ends:
        ends[0].connections[1].sendall(header + bytes(16))
        with pytest.raises(TransportError, match=message):
            ends[1].exchange([], [Incoming(0, torch.zeros(4))])


@HELPED
@pytest.mark.parametrize("work", ["send", "receive"])
def test_a_peer_that_leaves_or_stays_silent_is_named(monkeypatch, helped, work):
    data = torch.zeros(2**22 if work == "send" else 4)  # more than the kernel buffers

    def exchange(end):
        end.exchange([Outgoing(0, data)] if work == "send" else [], [Incoming(0, data)] if work == "receive" else [])

    with transports(monkeypatch, (helped, helped)) as ends:
        ends[1].timeout_s = 0.3
        with pytest.raises(TransportError, match=r"rank 1 waited 0\.3 s for rank 0 to"):
            exchange(ends[1])
        ends[0].close()
        with pytest.raises(TransportError, match="rank 1 lost rank 0"):
            exchange(ends[1])


@HELPED
def test_closing_ends_an_exchange_of_another_thread(monkeypatch, helped):
    with transports(monkeypatch, (helped, helped)) as ends:

        def close():
            time.sleep(0.05)
            ends[1].close()

        raised = at_once(lambda: ends[1].exchange([], [Incoming(0, torch.zeros(4))]), close)
        assert "rank 1 lost rank 0" in raised[0]
        assert ends[1].connections == {}


@HELPED
@pytest.mark.parametrize("keep", [True, False])
def test_rounding_equals_that_of_torch(monkeypatch, helped, keep):
    monkeypatch.setenv("MESHWRIGHT_HELPER", str(int(helped)))
    exact = torch.cat([random(1001), torch.tensor([float("inf"), -0.0, 3.4e38, 1e-45, 1.00390625, 1.01171875])])
    home = exact.clone()

    narrow = rounded_to_wire(home, torch.bfloat16, keep=keep)

    assert torch.equal(narrow, exact.to(torch.bfloat16))
    assert torch.equal(home, narrow.float() if keep else exact)


def test_a_tensor_of_another_device_is_rounded_there():
    assert rounded_to_wire(torch.empty(4, device="meta"), torch.bfloat16, keep=False).is_meta


@HELPED
def test_a_rank_that_waits_says_for_whom_from_time_to_time(monkeypatch, helped):
    with transports(monkeypatch, (helped, helped), timeout_s=0.8) as (first, second):
        said = []
        second.waits = lambda peer, waited_s: said.append((peer, waited_s))

        (raised,) = at_once(lambda: second.exchange([], [Incoming(0, torch.empty(4))]))

        assert raised == "rank 1 waited 0.8 s for rank 0 to send"
        assert {peer for peer, _ in said} == {0}
        assert len(said) >= 3
        assert [waited_s for _, waited_s in said] == sorted(waited_s for _, waited_s in said)
        assert said[0][1] < 0.5
        assert first.rank == 0


@pytest.mark.parametrize("crowded", [True, False])
@HELPED
def test_a_rank_that_waits_for_long_leaves_its_processor_to_others(monkeypatch, helped, crowded):
    """It looks for more for a little while at most, between two messages as before the first."""
    got, taken_s = torch.empty(2), []

    def wait(end):
        begun_s = time.thread_time()
        end.exchange([], [Incoming(1, got[:1]), Incoming(1, got[1:])])
        taken_s.append(time.thread_time() - begun_s)

    def send_late(end):
        for part in torch.arange(2.0).split(1):
            time.sleep(0.5)
            end.exchange([Outgoing(0, part)], [])

    with transports(monkeypatch, [helped, True], crowded=crowded) as ends:
        assert at_once(lambda: wait(ends[0]), lambda: send_late(ends[1])) == [None, None]

    assert got.tolist() == [0, 1]
    assert taken_s[0] < 0.2


@HELPED
def test_an_exchange_after_the_connections_were_closed_says_so(monkeypatch, helped):
    with transports(monkeypatch, (helped, helped)) as (near, _):
        near.close()

        with pytest.raises(TransportError, match="^rank 0 lost rank 1: connection closed$"):
            near.exchange([Outgoing(1, torch.ones(4))], [])


class ClosedFromTwoSides:
    """A connection whose end begins on one thread while another closes the transport."""

    def __init__(self, transport):
        self.transport = transport

    def shutdown(self, _):
        other = threading.Thread(target=self.transport.close)
        other.start()
        other.join(0.2)

    def close(self):
        pass


def test_two_threads_may_close_a_transport_at_once():
    transport = TcpTransport(dist.HashStore(), 0, 1)
    transport.connections.update({1: ClosedFromTwoSides(transport), 2: ClosedFromTwoSides(transport)})

    transport.close()

    assert not transport.connections

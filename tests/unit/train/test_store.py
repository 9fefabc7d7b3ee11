"""The store of a job: what torch's stores can, for clients that know the job's secret, and nothing for anybody else."""

import contextlib
import gc
import os
import socket
import threading
import time
from datetime import timedelta

import pytest
import torch.distributed as dist

from meshwright.handshake import CHALLENGE_BYTES, MOST_STRANGERS, SEAL_BYTES
from meshwright.train.elastic.meeting import host_store
from meshwright.train.elastic.store import SealedStore, StoreEnded
from meshwright.train.elastic.store_server import HEAD

SECRET = b"the secret of this job"


@pytest.fixture
def store():
    """Return a store that this process hosts."""
    hosted = host_store("127.0.0.1", 0, 5.0, SECRET)
    yield hosted
    hosted.close()


@pytest.fixture
def another():
    """Return a function that connects to a store once more."""
    made = []

    def connect(store, secret=SECRET, timeout_s=5.0):
        made.append(SealedStore("127.0.0.1", store.port, timeout_s, secret))
        return made[-1]

    yield connect
    for each in made:
        each.close()


def connected(store):
    return socket.create_connection(("127.0.0.1", store.port), timeout=5)


def test_it_does_what_torchs_own_store_does(store, another):
    torchs = dist.HashStore()
    for ours in (store, dist.PrefixStore("of a group", another(store)), torchs):
        ours.set("key", "value")
        assert ours.get("key") == b"value"
        assert (ours.check(["key"]), ours.check(["key", "none"])) == (True, False)
        assert (ours.add("count", 2), ours.add("count", 3), ours.get("count")) == (2, 5, b"5")
        assert ours.compare_set("swapped", "", "first") == b"first"
        assert ours.compare_set("swapped", "other", "second") == b"first"
        assert ours.compare_set("swapped", "first", "second") == b"second"
        assert ours.multi_get(["key", "count"]) == [b"value", b"5"]
        assert (ours.delete_key("key"), ours.delete_key("key"), ours.check(["key"])) == (True, False, False)
    assert store.num_keys() == 2 * torchs.num_keys()


def test_a_value_that_is_not_there_is_waited_for(store, another):
    other, found = another(store), []
    waiting = threading.Thread(target=lambda: found.append(other.get("late")))
    waiting.start()
    time.sleep(0.05)
    assert found == []

    store.set("late", b"\x00\xff")

    waiting.join(5)
    assert found == [b"\x00\xff"]
    other.wait(["late"])


def test_what_does_not_come_in_time_is_an_error_and_the_connection_goes_on(store):
    with pytest.raises(dist.DistStoreError, match="none"):
        store.wait(["none"], timedelta(seconds=0.05))
    prefixed = dist.PrefixStore("group", store)
    prefixed.set_timeout(timedelta(seconds=0.05))
    with pytest.raises(dist.DistStoreError, match="group/none"):
        prefixed.get("none")

    store.set("key", "value")
    assert store.get("key") == b"value"


def test_what_torch_alone_holds_lives_on(store):
    clone = dist.PrefixStore("group", store).clone()
    alone = dist.PrefixStore("group", SealedStore("127.0.0.1", store.port, 5.0, SECRET))
    gc.collect()

    clone.set("key", "value")

    assert alone.get("key") == b"value"
    alone.underlying_store.close()


def test_who_does_not_know_the_secret_gets_nothing(store, another):
    with pytest.raises(dist.DistNetworkError, match="no store of this job"):
        another(store, secret=b"a guess", timeout_s=0.2)
    with pytest.raises(dist.DistError):
        dist.TCPStore("127.0.0.1", store.port, is_master=False, timeout=timedelta(seconds=0.5))


def test_a_server_that_does_not_know_the_secret_feeds_nobody(another):
    impostor = host_store("127.0.0.1", 0, 5.0, b"a guess")

    with pytest.raises(dist.DistNetworkError, match="no store of this job"):
        another(impostor, timeout_s=0.2)

    impostor.close()


def test_a_seal_that_was_heard_is_worth_nothing(store):
    with socket.create_server(("127.0.0.1", 0)) as tap:
        heard = []

        def listen():
            guest, _ = tap.accept()
            with guest, connected(store) as onward:
                guest.sendall(onward.recv(CHALLENGE_BYTES))
                heard.append(guest.recv(CHALLENGE_BYTES + SEAL_BYTES))

        listening = threading.Thread(target=listen)
        listening.start()
        with pytest.raises(dist.DistNetworkError):
            SealedStore("127.0.0.1", tap.getsockname()[1], 0.2, SECRET)
        listening.join()

    with connected(store) as stranger:
        stranger.recv(CHALLENGE_BYTES)
        stranger.sendall(heard[0])
        assert stranger.recv(1) == b""


@pytest.mark.parametrize("said", [b"", b"x", b"GET / HTTP/1.1\r\n\r\n", bytes(1000)])
def test_strangers_who_say_anything_or_nothing_are_let_go_and_hold_up_nobody(store, said, another):
    with contextlib.ExitStack() as stack:
        strangers = [stack.enter_context(connected(store)) for _ in range(MOST_STRANGERS + 10)]
        for stranger in strangers:
            with contextlib.suppress(OSError):  # it may have been let go by now
                stranger.sendall(said)

        other = another(store)
        other.set("key", "value")

        assert store.get("key") == b"value"


def test_a_request_of_more_than_is_allowed_ends_the_connection_alone(store, another):
    other = another(store)
    other._connection.sendall(HEAD.pack(2**32 - 1))
    with pytest.raises(dist.DistNetworkError, match="lost the job's store"):
        other.get("key")
    unread = another(store)
    unread._connection.sendall(HEAD.pack(4) + b"junk")
    with pytest.raises(dist.DistNetworkError, match="lost the job's store"):
        unread.get("key")
    with pytest.raises(dist.DistNetworkError, match="is lost"):
        unread.get("key")

    store.set("key", "value")
    assert store.get("key") == b"value"


def test_who_waits_for_a_store_that_ends_is_told(store, another):
    other, said = another(store), []

    def wait():
        with pytest.raises(dist.DistNetworkError) as error:
            other.get("none")
        said.append(str(error.value))

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.05)

    store.close()

    waiting.join(5)
    assert "lost the job's store" in said[0]


def test_who_is_left_behind_hears_why_a_store_has_ended(store, another):
    waiting, idle, told = another(store), another(store), []

    def wait():
        with pytest.raises(StoreEnded) as ended:
            waiting.get("never")
        told.append(str(ended.value))

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.2)
    store.close(farewell="rank 0 failed: no space")
    thread.join(10)

    assert told == ["rank 0 failed: no space"]
    for _ in range(2):
        with pytest.raises(StoreEnded, match="^rank 0 failed: no space$"):
            idle.set("key", "value")


def test_a_store_that_ends_with_patience_answers_its_clients_until_they_leave(store, another):
    other = another(store)
    store.set("key", "value")
    ending = threading.Thread(target=store.close, args=(60.0,))
    ending.start()

    time.sleep(0.05)
    late = another(store)
    assert late.get("key") == other.get("key") == b"value"

    assert ending.is_alive()
    other.close()
    late.close()
    ending.join(5)
    assert not ending.is_alive()


def test_a_store_that_ends_does_not_wait_longer_than_it_has_patience_for_clients_that_stay(store, another):
    other = another(store)

    store.close(0.2)

    with pytest.raises(dist.DistNetworkError, match="lost"):
        other.get("key")


def test_a_value_larger_than_what_one_send_carries_arrives_whole(store, another):
    value = os.urandom(5_000_000)

    another(store).set("large", value)

    assert another(store).get("large") == value


def test_a_machine_that_is_silent_is_given_up_by_the_kernel(store, another):
    other = another(store, timeout_s=25)

    assert other._connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 25_000


def test_a_store_that_is_closed_leaves_no_thread_and_no_descriptor():
    before, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    hosted = host_store("127.0.0.1", 0, 5.0, SECRET)
    hosted.clone().set("key", "value")

    hosted.close()

    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == (before, threads)


def test_a_thread_that_waits_for_a_key_is_let_go_when_another_leaves_the_store(store, another):
    other, raised = another(store), []

    def wait():
        try:
            other.get("never written")
        except dist.DistNetworkError as error:
            raised.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    while not other._lock.locked():
        time.sleep(0.01)
    time.sleep(0.2)  # for its request to be under way
    other.close()
    waiting.join(2.0)

    assert not waiting.is_alive()
    assert len(raised) == 1

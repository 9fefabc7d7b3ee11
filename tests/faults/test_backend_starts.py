"""The backend starts under what containers, clusters and careful administrators do to a process."""

import platform

import pytest

from tests.faults.ranks_anywhere import ip, need, run_ranks, two_networks

pytestmark = [pytest.mark.netns, pytest.mark.slow, pytest.mark.timeout(400)]
SOAK = pytest.mark.soak
SHARED, TCP = "LocalEngine", "HostsEngine"
CALLS = {"x86_64": (319, 434, 285), "aarch64": (279, 434, 47)}.get(platform.machine(), (0, 0, 0))
MEMFD, PIDFD, FALLOCATE = CALLS
EPERM, ENOSYS = 1, 38
NOTICED_S = 2.0


def in_namespace(*flags, script=""):
    """Return a command that goes on in namespaces of its own, after a shell has run `script` there."""
    return ["unshare", *flags, "sh", "-c", f'{script}\n"$@"; exit $?', "sh"]


def shell(script):
    return ["sh", "-c", f'{script}\nexec "$@"', "sh"]


AS_USER = [
    *("setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups"),
    *("--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"),  # where the package lies in root's home
]
PLAIN = []
OWN_PIDS = in_namespace("-pf", "--kill-child")
OWN_PIDS_AND_PROC = in_namespace("-pf", "--kill-child", "--mount-proc")
OWN_NAME = in_namespace("-u", script="hostname other")
NO_SYS = in_namespace("-m", script="mount -t tmpfs none /proc/sys")
NO_OTHERS = in_namespace("-m", script="mount -t proc -o subset=pid proc /proc")
NO_PROC = in_namespace("-m", script="umount -l /proc")
NO_SHM = in_namespace("-m", script="mount -t tmpfs -o ro none /dev/shm")
SMALL_SHM = in_namespace("-m", script="mount -t tmpfs -o size=1m none /dev/shm")
NOEXEC = in_namespace("-m", script="mount -t tmpfs -o noexec none /mnt; export XDG_CACHE_HOME=/mnt")
ALL_NOEXEC = in_namespace("-m", script="mount -t tmpfs -o noexec none /mnt; export XDG_CACHE_HOME=/mnt TMPDIR=/mnt")


def both_right(said, engine):
    assert [answer and (answer.get("right"), answer.get("engine")) for answer in said] == [(True, engine)] * len(
        said
    ), said


def denied(*calls):
    if not all(calls):
        pytest.skip("the numbers of these system calls are not known here")
    return ",".join(f"{call}:{error}" for call, error in zip(calls[::2], calls[1::2], strict=True))


@SOAK
@pytest.mark.parametrize(
    "before",
    [
        pytest.param([PLAIN, OWN_PIDS_AND_PROC], id="own processes of one"),
        pytest.param([OWN_PIDS_AND_PROC] * 2, id="own processes of both"),
        pytest.param([PLAIN, OWN_PIDS], id="own processes, the machine's proc"),
        pytest.param([OWN_NAME, PLAIN], id="own host name"),
        pytest.param([NO_SYS] * 2, id="no proc sys"),
        pytest.param([NO_SYS, PLAIN], id="no proc sys on one"),
        pytest.param([NO_OTHERS] * 2, id="proc of processes only"),
        pytest.param([NO_PROC] * 2, id="no proc"),
        pytest.param([["unshare", "-Ur"], ["unshare", "-U"]], id="own users"),
        pytest.param([in_namespace("-i"), in_namespace("-m")], id="own ipc and files"),
        pytest.param([shell("ulimit -n 24; ulimit -l 0")] * 2, id="few files"),
    ],
)
def test_ranks_of_one_machine_share_memory_whatever_else_is_their_own(before):
    need("unshare")
    said, _ = run_ranks(before)

    both_right(said, SHARED)


@pytest.mark.alone
@pytest.mark.parametrize("before", [[PLAIN, OWN_PIDS], [OWN_PIDS_AND_PROC, OWN_PIDS_AND_PROC]])
@pytest.mark.parametrize("without_pidfd", [False, True])
def test_a_death_in_another_process_namespace_is_seen(before, without_pidfd):
    need("unshare")
    said, _ = run_ranks(before, DIES="1", DENY=denied(PIDFD, EPERM) if without_pidfd else "")

    assert said[1] is None
    assert said[0]["error"] == "RankFailure"
    assert "rank 1 (" in said[0]["text"]
    assert "died, in all_reduce" in said[0]["text"]
    assert said[0]["took_s"] < NOTICED_S


@SOAK
@pytest.mark.parametrize(
    ("calls", "before", "engine", "line"),
    [
        ((MEMFD, EPERM), PLAIN, SHARED, "on /dev/shm"),
        ((MEMFD, ENOSYS, FALLOCATE, ENOSYS), PLAIN, SHARED, "on /dev/shm"),
        ((MEMFD, EPERM), NO_SHM, TCP, "ranks of this host share no memory"),
        ((MEMFD, EPERM), SMALL_SHM, TCP, "ranks of this host share no memory"),
        ((PIDFD, EPERM), PLAIN, SHARED, "pidfd_open"),
        ((PIDFD, ENOSYS), PLAIN, SHARED, "pidfd_open"),
        ((FALLOCATE, EPERM), PLAIN, SHARED, ""),
    ],
)
def test_what_a_filter_of_system_calls_denies_is_done_another_way_with_a_line_of_warning(calls, before, engine, line):
    need("unshare")
    said, warned = run_ranks([before] * 2, DENY=denied(*calls))

    both_right(said, engine)
    assert len(warned[0]) == bool(line)
    assert all(line in text for text in warned[0])


@SOAK
@pytest.mark.parametrize("rank", [0, 1])
def test_what_is_denied_to_one_rank_alone_ends_in_one_way_for_both(rank):
    environments = [{}, {}]
    environments[rank] = {"DENY": denied(MEMFD, EPERM, PIDFD, ENOSYS)}
    said, _ = run_ranks([PLAIN] * 2, environments=environments)

    both_right(said, SHARED)


@SOAK
@pytest.mark.parametrize("blocks", [0, 1024])
def test_under_a_limit_on_the_size_of_files_ranks_talk_over_tcp(blocks):
    said, warned = run_ranks([shell(f"ulimit -f {blocks}")] * 2)

    both_right(said, TCP)
    assert any("File too large" in line for line in warned[0])


def test_ranks_of_two_users_talk_over_tcp_and_say_why():
    need("setpriv")
    said, warned = run_ranks([PLAIN, AS_USER], environments=[{}, {"HOME": "/"}])

    both_right(said, TCP)
    assert any("rank 0 is of user 0, this one of 54321" in line for line in warned[1])


@SOAK
def test_two_ranks_of_each_of_two_users_share_memory_by_twos():
    need("setpriv")
    said, _ = run_ranks([PLAIN, AS_USER, PLAIN, AS_USER], environments=[{}, {"HOME": "/"}] * 2)

    both_right(said, TCP)


@SOAK
@pytest.mark.parametrize("hosts", [("", ""), ("a", "b")], ids=["one host", "two"])
@pytest.mark.parametrize(
    ("before", "environment"),
    [
        pytest.param(AS_USER, {"HOME": ""}, id="no home and no such user"),
        pytest.param(AS_USER, {"HOME": "/"}, id="a home that cannot be written"),
        pytest.param(PLAIN, {"HOME": "/proc/nonexistent"}, id="a home that is not there"),
        pytest.param(NOEXEC, {}, id="a cache without programs"),
        pytest.param(ALL_NOEXEC, {}, id="no folder for programs"),
    ],
)
def test_without_a_folder_of_its_own_a_rank_starts_and_says_so(hosts, before, environment):
    need("unshare", "setpriv")
    environments = [environment | {"MESHWRIGHT_HOST": host} for host in hosts]
    said, warned = run_ranks([before] * 2, environments=environments)

    both_right(said, TCP if hosts[0] else SHARED)
    assert any("a cache folder is passed over" in line for line in warned[0])


V4, V6 = ("10.99.7.1/24", "10.99.7.2/24"), ("fd99::1/64", "fd99::2/64")
DOCKER = "172.17.0.1/16"


def join(*, address="", init="", **environment):
    return {"MASTER_ADDR": address, "INIT": init} | environment


@SOAK
@pytest.mark.parametrize(
    ("cable", "environments"),
    [
        pytest.param([V4], [join(address="10.99.7.1")] * 2, id="address"),
        pytest.param([V4], [join(init="tcp://10.99.7.1:29877")] * 2, id="tcp"),
        pytest.param([V4], [join(init="file")] * 2, id="file"),
        pytest.param([V4], [join(address="127.0.0.1"), join(address="10.99.7.1")], id="loopback on one"),
        pytest.param([V4], [join(address="10.99.7.1", GLOO_SOCKET_IFNAME="nosuch,v0")] * 2, id="named"),
        pytest.param([V6], [join(address="fd99::1")] * 2, id="IPv6"),
        pytest.param([V6], [join(address="fd99::1", GLOO_SOCKET_IFNAME="v0")] * 2, id="IPv6 named"),
        pytest.param([V6], [join(init="file")] * 2, id="IPv6 file"),
        pytest.param([V6, V4], [join(address="fd99::1", MESHWRIGHT_INTERFACE="v0")] * 2, id="both, store on IPv6"),
        pytest.param([V6, V4], [join(address="10.99.7.1", MESHWRIGHT_INTERFACE="v0")] * 2, id="both, store on IPv4"),
        pytest.param([], [join(init="file")] * 2, id="link-local"),
    ],
)
def test_two_hosts_find_the_address_that_leads_to_the_other(tmp_path, cable, environments):
    file = {"INIT": f"file://{tmp_path}/store"}
    environments = [each | (file if each["INIT"] == "file" else {}) for each in environments]
    with two_networks(*cable) as ends:
        said, warned = run_ranks(ends, environments=environments)

    both_right(said, TCP)
    assert not any("127." in str(answer["address"]) for answer in said)
    assert warned == [[], []]


def test_a_store_that_is_named_and_known_at_home_as_loopback(tmp_path):
    need("unshare")
    names = ["127.0.1.1 first", "10.99.7.1 first"]  # as Debian has it at home, and as the others know it
    for end, line in enumerate(names):
        (tmp_path / str(end)).write_text(f"127.0.0.1 localhost\n{line}\n")
    with two_networks(V4) as ends:
        before = [
            [*end, *in_namespace("-m", script=f"mount --bind {tmp_path}/{i} /etc/hosts")] for i, end in enumerate(ends)
        ]
        said, _ = run_ranks(before, MASTER_ADDR="first")

    both_right(said, TCP)


@SOAK
@pytest.mark.parametrize(
    ("environments", "text"),
    [
        (
            [{}, {"MESHWRIGHT_INTERFACE": "nosuch"}],
            "rank 1 of the group: MESHWRIGHT_INTERFACE=nosuch: no such",
        ),
        ([{"GLOO_SOCKET_IFNAME": "nosuch"}] * 2, "rank 0 of the group: GLOO_SOCKET_IFNAME=nosuch: no such interface"),
        (
            [{"MESHWRIGHT_INTERFACE": "lo"}] * 2,
            "MESHWRIGHT_INTERFACE=lo: its address 127.0.0.1 leads to no other",
        ),
        ([{"GLOO_SOCKET_IFNAME": "docker0"}] * 2, "GLOO_SOCKET_IFNAME=docker0 named the interface"),
        ([{}, {"MESHWRIGHT_WIRE": "narrow"}], "rank 1 of the group: MESHWRIGHT_WIRE=narrow"),
        ([{"MESHWRIGHT_SLOT_BYTES": "5"}, {}], "rank 0 of the group: MESHWRIGHT_SLOT_BYTES=5"),
    ],
)
def test_a_bad_setting_of_one_rank_is_told_to_all_at_once_by_the_variable_that_was_set(environments, text):
    with two_networks(V4) as ends:
        for end in ends:
            ip("-n", end[-1], "link", "add", "docker0", "type", "bridge")
            ip("-n", end[-1], "addr", "add", DOCKER, "dev", "docker0")
            ip("-n", end[-1], "link", "set", "docker0", "up")
        said, _ = run_ranks(ends, environments=environments, MASTER_ADDR="10.99.7.1", TIMEOUT_S="600")

    for answer in said:
        assert text in answer["text"]
        assert answer["took_s"] < 10


def test_two_machines_that_look_alike_in_everything_talk_over_tcp():
    """Clones of one virtual machine: same names, same boot, same namespaces, and no way from socket to socket."""
    with two_networks(V4) as ends:
        said, warned = run_ranks(ends, MASTER_ADDR="10.99.7.1", CLONES="1", TIMEOUT_S="600")

    both_right(said, TCP)
    assert any("rank 0 is not reached over its abstract Unix socket" in line for line in warned[1])


@SOAK
def test_one_host_does_not_care_for_interfaces():
    said, _ = run_ranks([PLAIN] * 2, GLOO_SOCKET_IFNAME="nosuch")

    both_right(said, SHARED)


def test_an_older_try_in_the_same_store_does_not_mislead(tmp_path):
    """The store outlives ranks that were killed while they met, and later ones that were killed at work."""
    for dies in ("0", "1", ""):
        said, _ = run_ranks([PLAIN] * 2, INIT=f"file://{tmp_path}/store", DIES=dies, MASTER_ADDR="")
    both_right(said, SHARED)

"""Without root an emulation takes a user namespace; where the system refuses, one line says why, with exit 2."""

import shutil
import subprocess

import pytest

from tests.emulated import MEGABIT, command_line

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(not shutil.which("setpriv") or not shutil.which("unshare"), reason="needs util-linux"),
]
POWERLESS = ["setpriv", "--bounding-set=-sys_admin,-net_admin", "--inh-caps=-sys_admin,-net_admin"]


def run_powerless(*words, before="true"):
    """Run a command without the rights to administer system or network, after shell commands of a small root.

    The outer user namespace bounds what `before` changes to this test.
    """
    script = f'{before}; exec "$@"'
    return subprocess.run(
        ["unshare", "-Urmn", "sh", "-c", script, "sh", *POWERLESS, *words], capture_output=True, text=True, timeout=200
    )


def test_an_emulation_works_without_any_privilege():
    rate = 100 * MEGABIT
    script = (
        'hostname; cat /sys/class/net/eth0/address > /dev/shm/mine; tc qdisc show dev eth0 | grep -c "rate 100Mbit"'
    )

    run = run_powerless(*command_line("--nodes", "2", "--nic", f"{rate * 8:.0f}b/s", "--", "sh", "-c", script))

    assert run.returncode == 0, run.stderr
    assert sorted(run.stdout.splitlines()) == [
        "[node0:rank0] 1",
        "[node0:rank0] node0",
        "[node1:rank1] 1",
        "[node1:rank1] node1",
    ]


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("echo 0 > /proc/sys/user/max_user_namespaces", "sysctl -w user.max_user_namespaces="),
        ("mount -t tmpfs none /proc/sys/net", "systempaths=unconfined"),
    ],
)
def test_a_system_that_forbids_namespaces_is_named_with_the_remedy(before, expected):
    run = run_powerless(*command_line("--", "true"), before=before)

    assert run.returncode == 2
    assert expected in run.stderr
    assert len(run.stderr.splitlines()) == 1


@pytest.mark.parametrize("kind", ["net", "pid", "mnt", "uts", "ipc"])
def test_a_limit_of_zero_namespaces_is_named(kind):
    words = ["unshare", "-Ur", "sh", "-c", f'echo 0 > /proc/sys/user/max_{kind}_namespaces; exec "$@"', "sh"]

    run = subprocess.run([*words, *command_line("--", "true")], capture_output=True, text=True, timeout=200)

    assert run.returncode == 2
    assert "/proc/sys/user" in run.stderr
    assert len(run.stderr.splitlines()) == 1

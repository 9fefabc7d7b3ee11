"""The right to make namespaces: taken as it is by root, through a user namespace by everybody else."""

import errno
import os
from pathlib import Path

from ...errors import InputError
from . import linux

_CAP_SYS_ADMIN = 21
_CAP_NET_ADMIN = 12


def enter() -> None:
    """Make sure that this process (one thread) may build namespaces; InputError says what is missing and how to get it.

    With the capabilities at hand nothing happens. Without, the process moves into a user namespace in which it is root.
    """
    if _has(_CAP_SYS_ADMIN) and _has(_CAP_NET_ADMIN):
        return
    user, group = os.geteuid(), os.getegid()
    try:
        linux.unshare(linux.CLONE_NEWUSER)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    except OSError as error:
        raise InputError(refusal(error.errno or errno.EIO, error.strerror or "a user namespace")) from None


def refusal(code: int, step: str) -> str:
    """Say in one line why namespaces cannot be had here, given the step that failed, and what to change."""
    why = f"emulate needs namespaces, and this system refuses them ({step})"
    knobs = {
        "/proc/sys/kernel/unprivileged_userns_clone": ("0", "sysctl -w kernel.unprivileged_userns_clone=1"),
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": (
            "1",
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        "/proc/sys/user/max_user_namespaces": ("0", "sysctl -w user.max_user_namespaces=10000"),
    }
    for path, (forbids, remedy) in knobs.items():
        try:
            value = Path(path).read_text().strip()
        except OSError:
            continue
        if value == forbids:
            return f"{why}; run as root, or allow user namespaces with `{remedy}`"
    if code == errno.ENOSPC:
        return f"{why}; raise the limits under /proc/sys/user (max_net_namespaces and its neighbours)"
    if code in (errno.ENOSYS, errno.EINVAL):
        return f"{why}; the kernel is built without them (CONFIG_USER_NS, CONFIG_NET_NS, CONFIG_PID_NS)"
    if "mount" in step:
        return f"{why}; run as root, or start the container with `--security-opt systempaths=unconfined`"
    container = "`--privileged` or `--cap-add SYS_ADMIN,NET_ADMIN --security-opt seccomp=unconfined`"
    return f"{why}; run as root, and in a container with {container}"


def _has(capability: int) -> bool:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> capability & 1)
    return False

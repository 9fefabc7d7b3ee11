"""A process whose wall clock is wrong, while all others on the machine have the right one."""

from pathlib import Path

SOURCE = Path(__file__).parent / "skew.c"


def set_clock(ahead_s: int) -> str:
    """Return shell commands after which what is started has a wall clock that is so far ahead."""
    build = f"T=$(mktemp -d); cc -shared -fPIC -O1 -o $T/skew.so {SOURCE} -ldl"
    return f"{build}; export LD_PRELOAD=$T/skew.so SKEW_S={ahead_s}"

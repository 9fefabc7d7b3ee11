"""A process whose wall clock is wrong, while all others on the machine have the right one."""

from pathlib import Path

SOURCE = Path(__file__).parent / "skew.c"


def set_clock(ahead_s: int, folder: Path | str = "$(mktemp -d)") -> str:
    """Return shell commands after which what is started has a wall clock so far ahead; they build it in a folder."""
    build = f"T={folder}/skew-$$.so; cc -shared -fPIC -O1 -o $T {SOURCE} -ldl"
    return f"{build}; export LD_PRELOAD=$T SKEW_S={ahead_s}"

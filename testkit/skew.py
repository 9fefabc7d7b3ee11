"""A process whose wall clock is wrong, while all others on the machine have the right one."""

import subprocess
from pathlib import Path

SOURCE = Path(__file__).parent / "skew.c"


def set_clock(ahead_s: int, folder: Path | str = "$(mktemp -d)") -> str:
    """Return shell commands after which what is started has a wall clock so far ahead; they build it in a folder."""
    build = f"T={folder}/skew-$$.so; cc -shared -fPIC -O1 -o $T {SOURCE} -ldl"
    return f"{build}; export LD_PRELOAD=$T SKEW_S={ahead_s}"


def settable_clock(folder: Path) -> dict[str, str]:
    """Return the variables of a process whose wall clock is as many seconds ahead as `folder`/skew says by then."""
    library = folder / "skew.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"], check=True)
    (folder / "skew").write_text("0")
    return {"LD_PRELOAD": str(library), "SKEW_FILE": str(folder / "skew")}

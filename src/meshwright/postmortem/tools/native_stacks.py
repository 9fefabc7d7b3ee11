"""Stacks as gdb prints them (`bt`, `thread apply all bt`, `py-bt`), and tools that print much like it.

Those are pstack, gstack, eu-stack and lldb.

Frames of C and C++ stand above the Python functions that called them; the interpreter's own say nothing.
"""

import re

import msgspec

from ..nouns.facts import Frame

PYTHON_FRAMES = "Traceback (most recent call first):"  # above what `py-bt` prints
_THREAD = re.compile(
    r"^Thread (?P<number>\d{1,6}) \((?:Thread 0x[0-9a-f]+ \()?LWP (?P<lwp>\d{1,8})\)?(?: \"(?P<name>[^\"]*)\")?\)?:"
)
_OF_EU_STACK = re.compile(r"^TID (?P<lwp>\d{1,8}):")
_OF_LLDB = re.compile(r"^[* ] thread #(?P<number>\d{1,6})(?:, tid = (?P<lwp>\d{1,8}))?(?:, name = '(?P<name>[^']*)')?")
_FRAME_OF_LLDB = re.compile(
    r"^ {2,6}[* ] ?frame #(?P<number>\d{1,4}): 0x[0-9a-f]+ (?P<library>[^\s`]+)`(?P<function>[^\s(]+)"
)
_FRAME = re.compile(r"^#(?P<number>\d{1,4}) +(?:0x[0-9a-f]+ (?:in )?)?(?P<function>[^\s(]+)(?P<rest>.*)$")
_LIBRARY = re.compile(r" (?:from|-) (?P<file>\S+)$")
_OF_PYTHON = re.compile(r"\bfor file (?P<file>[^\s,]+), line (?P<line>\d{1,7}), in (?P<function>[\w.<>]+)")
_PYTHON_FRAME = re.compile(r"^ *File \"(?P<file>[^\"]+)\", line (?P<line>\d{1,7}), in (?P<function>.+)$")
_INTERPRETER = re.compile(
    r"_?Py[A-Z_]|(?:pymain|cfunction|method|function|builtin|slot|object|partial|type|gen|call|run)_|do_call"
    r"|(?:_start|main|clone3?|start_thread|__libc_start\w*)$"
)
_ATTACHED = re.compile(
    r"\[Inferior \d+ \(process (?P<left>\d{1,8})\) detached\]"
    r"|^(?:Attaching to|Detaching from) (?:program: \S+, )?process (?P<to>\d{1,8})\b"
)
_PROMPT = re.compile(
    r"^\((?:rocm-?|cuda-)?gdb(?:-oneapi)?\) *(?:thread apply \S+ )?(?P<command>bt|backtrace|where|py-bt)\b"
)


class NativeThread(msgspec.Struct, frozen=True, kw_only=True):
    """The heading of a thread: its number in the debugger, 1 for the first of the process, and the kernel's or 0."""

    number: int
    lwp: int
    name: str = ""


def native_thread(text: str) -> NativeThread | None:
    """Return the thread of which a line is the heading, None for any other line."""
    if of_eu_stack := _OF_EU_STACK.match(text):
        return NativeThread(number=int(of_eu_stack["lwp"]), lwp=int(of_eu_stack["lwp"]))
    found = _THREAD.match(text) or _OF_LLDB.match(text)
    if found is None:
        return None
    return NativeThread(number=int(found["number"]), lwp=int(found["lwp"] or 0), name=found["name"] or "")


def native_frame(text: str) -> tuple[int, Frame | None] | None:
    """Return the number of a frame and its function, None for one of the interpreter; None for a line that is none.

    Where gdb knows Python's frames, it prints the Python function among the arguments of the interpreter's.
    """
    if of_lldb := _FRAME_OF_LLDB.match(text):
        inner = _INTERPRETER.match(of_lldb["function"])
        return int(of_lldb["number"]), None if inner else Frame(of_lldb["function"], of_lldb["library"])
    found = _FRAME.match(text)
    if found is None:
        return None
    number, rest = int(found["number"]), found["rest"]
    if python := _OF_PYTHON.search(rest):
        return number, Frame(python["function"], python["file"], int(python["line"]))
    if _INTERPRETER.match(found["function"]):
        return number, None
    library = _LIBRARY.search(rest)
    return number, Frame(found["function"], library["file"] if library else "")


def python_frame(text: str) -> Frame | None:
    """Return the Python function in a line of `py-bt`, None for any other line."""
    found = _PYTHON_FRAME.match(text)
    return Frame(found["function"], found["file"], int(found["line"])) if found else None


def process_attached(text: str) -> int | None:
    """Return the process that gdb says it attaches to or leaves, None for any other line."""
    found = _ATTACHED.search(text) if "process " in text else None
    return int(found["left"] or found["to"]) if found else None


def asked_at_prompt(text: str) -> str:
    """Return which stack somebody asked of a debugger at its prompt: that of C (`bt`) or of Python (`py-bt`), or ""."""
    found = _PROMPT.match(text) if text[:1] == "(" else None
    return "" if found is None else "py-bt" if found["command"] == "py-bt" else "bt"

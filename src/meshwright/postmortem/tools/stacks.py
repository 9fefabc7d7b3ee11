"""Stacks of running ranks, as py-spy, pystack and Python's faulthandler print them: what the main thread stands in."""

import re
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from ..nouns.facts import Fact, Frame, StackTrace
from ..nouns.names import collective_in
from ..nouns.where import Where
from ..positions.stands import WAITS, stand_of
from ..positions.transfers import deed_of_helper, deed_towards, is_wait
from ..text.lines import FileHint, LogMessage, names_several_ranks
from .commands import numbers_of_command
from .headings import (
    Heading,
    heading_of,
    host_asked,
    host_of_viewer,
    note_behind,
    process_asked,
    short_heading_of,
)
from .native_stacks import PYTHON_FRAMES, asked_at_prompt, native_frame, native_thread, process_attached, python_frame

WORDS = (
    "most recent call first",
    "Thread ",
    "Traceback for thread",
    "py-spy dump",
    "gdb",
    "TID ",
    "thread #",
)  # one is in each text with a dump
_MAIN = "MainThread"
MOST_IN_NAMES = 1000  # a larger number in the name of a dump is a process, not a rank
_PROCESS = re.compile(r"^Process (?P<pid>\d+): (?P<command>.*)")
_SPY_THREAD = re.compile(r"^Thread (?P<id>\w+) \((?P<state>[\w+ ]+)\)(?:: \"(?P<name>[^\"]*)\")?")
_SPY_FRAME = re.compile(
    r"^\s+(?P<function>\S.*?) \((?P<file>[^()]*?)(?::(?P<line>\d+))?\)(?:\s+(?P<note>#.*|[(\[]?\s?\w{1,40}=.*))?$"
)
_WITH_NOTE = re.compile(r"^(?P<function>[\w.<>]+?)[\s(\[#]+(?P<note>[A-Za-z_]\w*=.*)$")  # of who copied the dump
_NOTED_PEER = re.compile(r"(?<!\w)(?P<name>dst|src|peer|(?:dst|dest|src)_rank)=(?P<peer>\d{1,6})(?![\w.])")
_NOTED_DEED = re.compile(  # in a person's comment, or in one of torch's names of what a pipeline does (0SEND_F1)
    r"(?<![A-Za-z])i?(?P<deed>send|recv|receive)(?:s|ing)?(?![a-z]).*?"
    r"\b(?:to|from|peer|dst|src|rank)\b[ =:]{0,3}(?:rank |peer )?(?P<peer>\d{1,6})(?![\w.])",
    re.IGNORECASE,
)
_FAULT_THREAD = re.compile(r"^(?:Current thread|Thread) 0x\w+(?: \[[^\]]*\])? \(most recent call first\):")
_FAULT_FRAME = re.compile(r"^\s*File \"(?P<file>[^\"]+)\", line (?P<line>\d+) in (?P<function>.+)$")
_COLLECTS = "Garbage-collecting"  # what faulthandler prints above the frames of a thread
_PYSTACK_THREAD = re.compile(r"^Traceback for thread \d+ (?:\([^)]*\) )?\[[^\]]*\] \(most recent call last\):")
_PYSTACK_FRAME = re.compile(r"^\s+\((?:Python|C)\) File \"(?P<file>[^\"]+)\", line (?P<line>\d+), in (?P<function>\S+)")
_VARIABLE = re.compile(r"^\s+\w+: ")  # of a dump with arguments or locals
_PEER = re.compile(r"^\s+(?P<name>dst|src|peer|(?:dst|dest|src)_rank): (?P<peer>\d{1,6})$")
_HANDLE = re.compile(
    r"^\s+\w+: <?(?P<type>[A-Za-z_][\w.]{0,80})[ (](?P<rest>[^>)]{1,400})"
)  # an object as it prints itself
_UNDER_WAY = re.compile(r"\b(?:op|kind|type|direction)=['\"]?i?(?P<operation>send|recv)\b", re.IGNORECASE)
_ITS_PEER = re.compile(r"\b(?:peer|src|dst)=(?P<peer>\d{1,6})\b")
_BACKWARD = re.compile(r"torch/autograd/\S+ (?:_engine_run_backward|run_backward|backward)$")
_FOREIGN = re.compile(r"$|Dummy-\d+$")  # a thread that C++ began: nameless until Python is asked for it
_BEGUN = {"_bootstrap", "_bootstrap_inner"}
SERVES_A_RANK = re.compile(  # a process that serves a rank or a launcher: where it stands says nothing of the rank
    r"torch/utils/data/_utils/worker\.py:_worker_loop$|torch/distributed/(?:elastic/(?:agent/|multiprocessing/(?!errors/|api\.py:_wrap$))|run\.py:)"
    r"|torch/_inductor/compile_worker/|multiprocessing/(?:resource_tracker|forkserver|managers|pool)\.py:"
    r"|concurrent/futures/process\.py:_process_worker$|(?:^|/)wandb/(?:sdk/)?(?:service|internal)/"
    r"|torch/multiprocessing/spawn\.py:(?:join|start_processes)$|accelerate/commands/launch\.py:|deepspeed/launcher/"
)
_JOINS = re.compile(r"(?:__)?pthread_(?:clock|timed)?join(?:_ex|_np)?(?:@\S+)?|_wait_for_tstate_lock")
_FEW_FRAMES = 3  # from the innermost
_FILE_RANK = re.compile(r"(?:^|[._-])(?P<word>rank|r)?[._-]?(?P<rank>\d+)(?:[._-]|$)")
_CLOCK = re.compile(r"0[1-9][0-5]\d")  # the hour and the minute of a dump; ranks of four digits are all of a folder
_FEW = 2  # dumps of processes


class _SpyFrame(msgspec.Struct):
    """One function as py-spy's JSON has it."""

    name: str
    filename: str = ""
    short_filename: str | None = None
    line: int | None = None


class _SpyThread(msgspec.Struct):
    """One thread as py-spy's JSON has it."""

    pid: int
    frames: list[_SpyFrame]
    thread_name: str | None = None


class _Thread:
    """A thread while its frames are read."""

    def __init__(
        self, where: Where, name: str = "", *, is_innermost_first: bool = True, is_native: bool = False
    ) -> None:
        self.where, self.name, self.is_innermost_first = where, name, is_innermost_first
        self.is_native = is_native  # printed by gdb
        self.has_python = False  # its Python functions follow those of C
        self.frames: list[Frame] = []

    @property
    def is_main(self) -> bool:
        return self.name == _MAIN or any(frame.function == "<module>" for frame in self.frames)


def read(messages: list[LogMessage], hint: FileHint, file_name: str) -> Iterator[Fact]:
    """Yield the stack of each process of which one file has a dump; a file may hold several, and several a process.

    Where a launcher labels the lines of several processes, each is read by itself: they write between each other.
    """
    spoken: dict[tuple[int | None, str, int | None, int | None, int | None], list[LogMessage]] = {}
    for message in messages:
        if hint.rank is None and message.rank is not None and heading_of(message.where.text):
            message = replace(message, rank=None, text=message.where.text)  # above lines that bear no rank
        source = (message.rank, message.host or message.pod, message.pid, message.task, message.local_rank)
        spoken.setdefault(source, []).append(message)
    named = _Named() if hint.is_local or hint.has_several else _number_in(file_name)
    for (_, host, pid, *_), own in spoken.items():
        stacks = list(_read(own, hint, named))
        if len({stack.pid for stack in stacks if stack.rank == named.number}) >= _FEW:  # the number is none of these
            stacks = list(_read(own, hint, _Named()))
        for stack in stacks:
            yield replace(stack, host=host or stack.host, pid=stack.pid if stack.pid is not None else pid)


class _Named(msgspec.Struct, frozen=True, kw_only=True):
    """The number in the name of a file that may be a rank's, and whether the name says that it is."""

    number: int | None = None
    is_rank: bool = False


def _number_in(file_name: str) -> _Named:
    """Return the number in a file's name; none where it is a process's or a clock's, or there are several ranks."""
    named = None if names_several_ranks(file_name) else _FILE_RANK.search(file_name.rsplit(".", 1)[0])
    if named is None or (not named["word"] and _CLOCK.fullmatch(named["rank"])):
        return _Named()
    number, is_rank = int(named["rank"]), named["word"] is not None
    return _Named(number=number if is_rank or number < MOST_IN_NAMES else None, is_rank=is_rank)


class _Dump:
    """The threads of one process while they are read, and what is known of it."""

    def __init__(self, rank: int | None, *, pid: int | None = None, host: str = "") -> None:
        self.rank, self.pid, self.host = rank, pid, host
        self.local_rank: int | None = None
        self.device: int | None = None
        self.is_asked = False  # by a command, of whose output the head may be missing
        self.is_cut = False
        self.numbers: list[int] = []  # of its threads in gdb
        self.threads: list[_Thread] = []

    @property
    def thread(self) -> _Thread | None:
        """The thread that is being read."""
        return self.threads[-1] if self.threads else None

    def add(self, message: LogMessage) -> None:
        """Note what a line says of its threads: a heading, a frame, an argument of the last one."""
        text = message.text
        if self._add_native(message):
            return
        if thread := _SPY_THREAD.match(text):
            self.threads.append(_Thread(message.where, thread.group("name") or ""))
            return
        if _PYSTACK_THREAD.match(text):
            self.threads.append(_Thread(message.where, is_innermost_first=False))
            return
        if self.thread is None and self.is_asked and _SPY_FRAME.match(text):
            self.threads.append(_Thread(message.where))
            self.is_cut = True
        if self.thread is None:
            return
        if text.strip() == _COLLECTS:
            self.thread.frames.append(Frame(_COLLECTS))
        elif _VARIABLE.match(text):
            _note_peer(self.thread, text)
        elif frame := _FAULT_FRAME.match(text) or _SPY_FRAME.match(text) or _PYSTACK_FRAME.match(text):
            at = len(self.thread.frames) if self.thread.is_innermost_first else 0
            self.thread.frames.insert(at, _frame(frame))

    def is_ended_by(self, text: str) -> bool:
        """Return whether a line is the heading of a thread of another process: gdb prints their numbers down, or up."""
        thread = native_thread(text)
        last = self.numbers[-1] if self.numbers else None
        if thread is None or last is None:
            return False
        return thread.number in self.numbers or (last == 1 and self.numbers[0] != 1)

    def _add_native(self, message: LogMessage) -> bool:
        """Note what a line of gdb says of its threads; return whether it is one."""
        text = message.text
        if left := process_attached(text):
            self.pid = left if self.pid is None else self.pid
            return True
        if thread := native_thread(text):
            is_first = thread.lwp == self.pid or (self.pid is None and thread.number == 1)
            self.pid = thread.lwp if is_first else self.pid
            self.numbers.append(thread.number)
            self.threads.append(_Thread(message.where, _MAIN if is_first else thread.name, is_native=True))
            return True
        is_native = self.is_asked or (self.thread is not None and self.thread.is_native)
        if text == PYTHON_FRAMES and is_native:
            self._current(message).has_python = True
            return True
        if is_native and (found := native_frame(text)):
            thread_of, frame = self._current(message), found[1]
            thread_of.frames += [frame] if frame else []
            return True
        if self.thread and self.thread.has_python and (function := python_frame(text)):
            self.thread.frames.append(function)
            return True
        return False

    def _current(self, message: LogMessage) -> _Thread:
        """Return the thread that gdb prints: where no heading names one, the first of the process."""
        if self.thread is None:
            self.threads.append(_Thread(message.where, _MAIN, is_native=True))
        return self.threads[-1]

    def stack(self) -> Iterator[StackTrace]:
        """Yield the stack of its main thread."""
        for stack in _stack(self.threads, self.rank, self.pid):
            if self.is_cut and stand_of(stack).kind not in WAITS:
                continue  # who is cut off in its own code may wait below it
            local, device = (self.local_rank, self.device) if stack.rank is None else (None, None)
            yield replace(stack, host=self.host, local_rank=local, device=device)

    def once_more(self) -> "_Dump":
        """Return another dump of the same process, of which nothing has been read."""
        dump = _Dump(self.rank, pid=self.pid, host=self.host)
        dump.local_rank, dump.device = self.local_rank, self.device
        return dump

    def told_by(self, heading: Heading, asked: str) -> None:
        """Note what a heading says; the host of a command `asked` counts where it names none."""
        self.rank = heading.rank if self.rank is None else self.rank
        self.local_rank = heading.local_rank if self.local_rank is None else self.local_rank
        self.device, self.host = heading.device, heading.host or asked

    def told_by_environment(self, text: str) -> None:
        """Note the rank, and that on its host, in a line of variables between a process's name and its threads."""
        rank, local = numbers_of_command(text)
        self.rank = self.rank if rank is None else rank
        self.local_rank = self.local_rank if local is None else local


def _read(messages: list[LogMessage], hint: FileHint, named: _Named) -> Iterator[StackTrace]:
    """Yield the stacks in the lines of one source, in a file of this name."""
    dump = _Dump(hint.rank)
    headed = Heading()  # of the next process
    has_short = _have_short_headings(messages)
    host = ""
    for message in messages:
        text = message.text
        host = host_asked(text) or host
        asked = process_asked(text)
        heading = heading_of(text) or (short_heading_of(text) if has_short else None)
        if hint.rank is None and heading:
            yield from dump.stack()
            headed, dump = heading, _Dump(None, pid=asked)
            dump.told_by(heading, host)
            dump.is_asked = asked is not None
        elif hint.rank is None and (place := host_of_viewer(text)):
            yield from dump.stack()
            headed, dump = Heading(), _Dump(None, host=place)
        elif asked is not None:
            yield from dump.stack()
            headed = Heading() if dump.threads else headed
            dump = _Dump(hint.rank, pid=asked)
            dump.told_by(headed, host)
            dump.is_asked = True
        elif at_prompt := asked_at_prompt(text):
            if at_prompt == "bt" and dump.threads:  # once more, of the same process
                yield from dump.stack()
                dump = dump.once_more()
            dump.is_asked = True
        elif process := _PROCESS.match(text):
            yield from dump.stack()
            dump = _Dump(hint.rank, pid=int(process["pid"]), host=host)
            told, dump.local_rank = numbers_of_command(process["command"])
            dump.rank = told if hint.rank is None else hint.rank
            dump.told_by(note_behind(process["command"]) or headed, host)
            headed = Heading()
            may_be = dump.local_rank is None or (named.is_rank and dump.local_rank <= (named.number or 0))
            if dump.rank is None and may_be and named.number != dump.pid:
                dump.rank = named.number
        elif hint.rank is None and dump.pid is not None and not dump.threads and "RANK=" in text:
            dump.told_by_environment(text)
        elif _FAULT_THREAD.match(text):
            if dump.thread is not None and dump.thread.is_main and text.startswith("Current"):
                dump.rank = message.rank if dump.rank is None else dump.rank
                yield from dump.stack()
                dump.threads = []
            dump.threads.append(_Thread(message.where))
        else:
            if dump.is_ended_by(text):
                yield from dump.stack()
                dump = _Dump(hint.rank)
            dump.add(message)
        if dump.rank is None and (dump.pid is None or dump.is_asked) and dump.thread and named.number != dump.pid:
            dump.rank = named.number
        if dump.rank is None and message.rank is not None and dump.thread is not None:
            dump.rank = message.rank
    yield from dump.stack()


def _have_short_headings(messages: list[LogMessage]) -> bool:
    """Whether each process has its own short heading: one of a round stands above several."""
    ranks = [heading.rank for message in messages if (heading := short_heading_of(message.text))]
    processes = sum(_PROCESS.match(message.text) is not None for message in messages)
    return len(ranks) == len(set(ranks)) >= processes


def _note_peer(thread: _Thread, text: str) -> None:
    """Note the partner of a send or a receive, in a line of the arguments of the frame that was read last."""
    peer = _PEER.match(text)
    at = -1 if thread.is_innermost_first else 0
    if not thread.frames:
        return
    frame = thread.frames[at]
    if peer:
        thread.frames[at] = _with_peer(frame, peer)
    elif is_wait(frame) and (handle := _handle(text)):
        thread.frames[at] = replace(frame, peer=handle[1], transfer=handle[0])


def _frame(found: re.Match[str]) -> Frame:
    """Return a frame, with the partner of its transfer where somebody has noted it in its line."""
    told = found.groupdict()
    function, note = told["function"], told.get("note") or ""
    if not note and "=" in function and (noted := _WITH_NOTE.match(function)):
        function, note = noted["function"], noted["note"]
    frame = Frame(function, told["file"], int(told["line"]) if told["line"] else None)
    if peer := _NOTED_PEER.search(note):
        return _with_peer(frame, peer)
    deed = _NOTED_DEED.search(note) if note.startswith("#") else None
    if deed is None:
        return frame
    return replace(frame, peer=int(deed["peer"]), transfer="send" if deed["deed"].lower() == "send" else "recv")


def _with_peer(frame: Frame, peer: re.Match[str]) -> Frame:
    """Return the frame of a send or a receive with its partner; any other frame as it is."""
    if deed := deed_of_helper(frame.function) or deed_towards(frame.function, peer["name"]):
        return replace(frame, peer=int(peer["peer"]), transfer=deed)
    return replace(frame, peer=int(peer["peer"])) if collective_in(frame.function) in {"send", "recv"} else frame


def _handle(text: str) -> tuple[str, int] | None:
    """Return the send or receive whose handle an argument is, and its partner; None for any other argument."""
    handle = _HANDLE.match(text)
    peer = _ITS_PEER.search(handle["rest"]) if handle else None
    if handle is None or peer is None:
        return None
    told = _UNDER_WAY.search(handle["rest"])
    deeds = {told["operation"].lower()} if told else {d for d in ("send", "recv") if d in handle["type"].lower()}
    return (deeds.pop(), int(peer["peer"])) if len(deeds) == 1 else None


def _stack(threads: list[_Thread], rank: int | None, pid: int | None) -> Iterator[StackTrace]:
    filled = [thread for thread in threads if thread.frames]
    if not filled:
        return
    mains = [thread for thread in filled if thread.is_main] or [t for t in filled if t.frames[-1].function == "main"]
    main = mains[0] if mains else filled[-1]
    main = _thread_joined(main, filled) or main
    frames = main.frames
    if any(SERVES_A_RANK.search(f"{frame.file}:{frame.function}") for frame in frames):
        return
    if _BACKWARD.search(f"{main.frames[0].file} {main.frames[0].function}"):
        # autograd runs hooks on threads of its own, which no threading module began; the main one only waits for them
        own = [t for t in filled if t is not main and _FOREIGN.match(t.name) and not _is_begun(t)]
        callers = [frame for frame in main.frames if not re.search(r"(?:^|/)torch/", frame.file)]
        frames = [*own[0].frames, *callers] if own else main.frames
    is_native = main.is_native and all(frame.line is None for frame in frames)
    yield StackTrace(rank=rank, pid=pid, frames=tuple(frames), where=main.where, is_native=is_native)


def _is_begun(thread: _Thread) -> bool:
    """Whether Python's own module began a thread, as the monitor of a bar: a dump may leave out its last frames."""
    return thread.frames[-1].function == "run" or any(frame.function in _BEGUN for frame in thread.frames)


def _thread_joined(main: _Thread, filled: list[_Thread]) -> _Thread | None:
    """Return the one thread in a collective where the main thread only waits for its own threads to end; else None."""
    if not any(_JOINS.fullmatch(frame.function) for frame in main.frames[:_FEW_FRAMES]):
        return None
    stands = [(one, stand_of(StackTrace(rank=None, frames=tuple(one.frames), where=one.where))) for one in filled]
    within = [one for one, stand in stands if one is not main and stand.kind == "collective"]
    return within[0] if len(within) == 1 else None


def is_json(text: str) -> bool:
    """Return whether a text is what `py-spy dump --json` prints."""
    return text.lstrip()[:1] == "[" and '"thread_name"' in text and '"frames"' in text


def read_json(text: str, hint: FileHint, file_name: str, where: Where) -> Iterator[StackTrace]:
    """Yield the stack of each process of a dump in JSON; nothing where it is cut off or of another form."""
    try:
        dumped = msgspec.convert(msgspec.json.decode(text), list[_SpyThread])
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
        return
    rank = _number_in(file_name).number
    for pid in dict.fromkeys(thread.pid for thread in dumped):
        threads = []
        for thread in dumped:
            if thread.pid == pid:
                threads.append(_Thread(where, thread.thread_name or ""))
                threads[-1].frames = [
                    Frame(one.name, one.short_filename or one.filename, one.line) for one in thread.frames
                ]
        own = None if rank == pid else rank
        yield from _stack(threads, hint.rank if hint.rank is not None else own, pid)

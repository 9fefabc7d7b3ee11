"""Ranks that still prepare data: by a progress bar over them, or by the last words of a rank, which may name a lock."""

import re
from collections import defaultdict
from collections.abc import Iterator

from ..nouns.facts import Busy
from ..text.lines import LogMessage
from ..text.speakers import RANK_OF_JOB
from ..text.steps import WENT_ON

_BAR = re.compile(
    r"(?P<label>[^|\r\n]{0,120}?)(?P<percent>\d{1,3})%\|[^|]*\|"
    r" *(?P<done>[\d.,]+[kMG]?)/(?P<all>[\d.,]+[kMG]?) ?\[(?P<rate>[^\]]*)"
)
_DATA_RATE = re.compile(r"(?:examples|docs|files|rows)/s|s/(?:example|doc|file|row)")
_DATA_WORDS = re.compile(
    r"tokeni[sz]|preprocess|\bmap\b|\bfilter|dataset|download|packing|shard|extract|cach(?:e|ing)|prepar"
    r"|group(?:ing)? texts|loading data|convert",
    re.IGNORECASE,
)
_SURELY_DATA = re.compile(r"tokeni[sz]|dataset|\bsplit\b|\bmap\b|\bfilter", re.IGNORECASE)
_TRAIN_WORDS = re.compile(r"epoch|train|step|loss|eval|checkpoint shards|loading weights|validation", re.IGNORECASE)
_MAY_ASK = ("thrown while", "Retrying (", "endpoint URL", "retried in")  # a quick look
DOWNLOAD = "a download of data that did not answer"
_MOST_WORDS = 3  # messages of a rank that are its last
_FILE_OF_DATA = (
    r"(?!\S*(?:ckpt|checkpoint|weights|models?/))\S*"
    r"(?:/datasets?/|\.parquet|\.jsonl|\.arrow|\.tar\b|\.zst|\.json\.gz|\.tfrecords?\b|\.mds\b)"
)
_ASKED = (  # as libraries of the web tell of what did not answer: a hub's, urllib3, botocore, TensorFlow
    rf"thrown while requesting\s+\w+ (?P<url>{_FILE_OF_DATA}\S*)"
    rf"|Retrying \(Retry\(total=\d+.{{0,400}}?: (?P<path>/{_FILE_OF_DATA}\S*)"
    rf"|[Tt]imeout on endpoint URL: \"(?P<endpoint>{_FILE_OF_DATA}[^\s\"]*)"
    rf"|\bretried in\b.{{0,240}}?\breading (?P<object>\w{{2,6}}:/{_FILE_OF_DATA}\S*)"
)
_READS = re.compile(  # of a program that says so of itself
    rf"{_ASKED}"
    r"|disconnected from remote data host"
    r"|\b(?:build|load|read|fetch|download|index|cach|tokeni[sz]|preprocess|decod|open|shuffl|scann"
    r"|prepar|blend|pack|concatenat|interleav|mix)ing\b.{0,60}?\b(?:data(?:set|loader)?s?|shards?|samples?"
    r"|batch(?:es)?|parquet|corpus|manifest|videos?|images?(?! (?:processor|encoder|tower))|examples)\b"
    r"|\b(?:data ?loader|prefetch\w*|dataset|webdataset)\b.{0,60}?\b(?:stall|wait|slow|retr|time|empty|starv|block)\w*"
    r"|\b(?:s3|gs|hdfs|oss|abfss?)://\S+.{0,80}?\b(?:retr|timeout|slow|waiting)\w*",
    re.IGNORECASE,
)
_DOWNLOADS = re.compile(_ASKED)  # of a library, in a line that bears no rank in front
_TIME = r"(?P<{0}>\d{{1,6}}(?:\.\d{{1,6}})?) ?(?P<{0}_unit>s|sec\w*|m|min\w*|h|hours?)\b"
_BATCH = r"(?:(?:mini|micro)?-?batch(?:es)?|samples?|shards?|examples|data(?:set|[ _]?loader)?|input|prefetch\w*)\b"
_WAITS = re.compile(  # a program's word that it waits for its own data, and how long
    rf"\b(?:wait(?:ed|ing)|blocked|starv(?:ed|ing)|stalled|stuck)\b(?: (?:for )?{_TIME.format('before')}(?: waiting)?)?"
    rf" (?:for|on|in) (?:\w+ ){{0,2}}?{_BATCH}(?:\W{{1,3}}(?:\w+ ){{0,5}}?\(?{_TIME.format('behind')})?"
    rf"|\bno (?:\w+ ){{0,2}}?{_BATCH}(?: \w+){{0,3}}? (?:for|after|in|since) (?:\w+ ){{0,2}}?{_TIME.format('none')}"
    rf"|\b(?:next|first) {_BATCH}(?: \w+){{0,4}}? (?:for|after) {_TIME.format('late')}",
    re.IGNORECASE,
)
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0}
_LONG_S = 30.0  # for a batch
_COUNTED_DATA = re.compile(
    r"\b(?P<done>\d{1,15}) ?(?:/|of|out of) ?(?P<all>\d{1,15}) (?:\w+ )?"
    r"(?:datasets?|shards?|samples?|documents?|docs|files|examples|records|parquet|images|videos)\b",
    re.IGNORECASE,
)
_OF_MODEL = re.compile(r"checkpoint|weights|safetensors|model|\bsav|writ|\bwrote|upload", re.IGNORECASE)
_WRITES = r"\b(?:writ(?:es?|ing|ten)|wrote|save[sd]?|saving|upload\w*|PutObject|UploadPart|flush\w*)\b"
_RETRIED = re.compile(  # a write to a store, as its client tells that it begins it again
    rf"(?m:^)(?=.*{_WRITES})(?=.*\b(?:[Rr]etr(?:y|ies|ied|ying)|RETRY\w*)\b)"
    r".*(?:\battempts?\b|\bback[ -]?(?:ing )?off\b|\b(?:HTTP|status|code|error)[ =:]{1,2}(?:429|5\d\d)\b"
    r"|UNAVAILABLE|DEADLINE_EXCEEDED|SlowDown|Service Unavailable|timed? ?out|[Cc]onnection)",
    re.IGNORECASE,
)
_WRITTEN = re.compile(rf"{_WRITES} (?P<done>\d{{1,15}}) ?(?:/|of|out of) ?(?P<all>\d{{1,15}})\b", re.IGNORECASE)
_LOCK = re.compile(  # of a program that waits for it, by its last word
    r"\b[Ll]ock \S+ not acquired\b|\b(?:acquiring|waiting (?:for|on)|waiting to acquire) (?:an? |the )?"
    r"(?:\w+ ){0,2}lock(?:file)?\b|\bAttempting to acquire lock\b"
)
_NUMBERS = re.compile(r"\d[\d.,]*")


def by_bars(messages: list[LogMessage], went_on: dict[int | None, list[int]]) -> Iterator[Busy]:
    """Yield the bars over data that had not come to their end, and after which the rank did not train."""
    last: dict[tuple[int | None, str], tuple[int, Busy | None]] = {}
    for index, message in enumerate(messages):
        for bar in _BAR.finditer(message.text) if "%|" in message.text else ():
            label = bar.group("label").strip()
            ended = int(bar.group("percent")) >= 100 or bar.group("done") == bar.group("all")
            if _TRAIN_WORDS.search(label) and not _SURELY_DATA.search(label):
                continue
            if _DATA_WORDS.search(label) or _DATA_RATE.search(bar.group("rate")):
                shown = label.rstrip(": ") or "a progress bar"
                what = f"{shown} at {bar.group('percent')} % ({bar.group('done')} of {bar.group('all')})"
                busy = None if ended else Busy(rank=message.rank, what=what, where=message.where)
                last[message.rank, label] = index, busy
    for (rank, _), (index, busy) in last.items():
        if busy is not None and not any(step > index for step in went_on[rank]):
            yield busy


def by_last_words(messages: list[LogMessage]) -> Iterator[Busy]:
    """Yield who was last heard to read its data, and made no step since; lines alike but for numbers are one word.

    Or to wait for a lock, or to begin a write to its store again and again.
    """
    last: dict[int, list[tuple[str, LogMessage]]] = defaultdict(list)  # each with its text but for numbers
    for message in messages:
        if message.rank is None or ".cpp:" in message.text[:80]:
            continue
        if WENT_ON.search(message.text) and not _waits_long(message.text) and not _is_writing(message.text):
            last[message.rank] = []
            continue
        words, said = last[message.rank], _NUMBERS.sub("#", message.text[:200])
        words = words[:-1] if words and words[-1][0] == said else words
        last[message.rank] = [*words, (said, message)][-_MOST_WORDS:]
    for rank, words in last.items():
        if words and _LOCK.search(words[-1][1].text):
            what = f"a wait of rank {rank} for a lock ({words[-1][1].text.strip()[:120]})"
            yield Busy(rank=rank, what=what, kind="host", where=words[-1][1].where)
            continue
        if retried := _retried([message for _, message in words]):
            what = f"writing of rank {rank} to its store, begun again and again ({retried.text.strip()[:120]})"
            yield Busy(rank=rank, what=what, kind="host", where=retried.where)
            continue
        if told := [message for _, message in words if _reads(message.text)]:
            what = f"reading of data by rank {rank} ({told[-1].text.strip()[:120]})"
            yield Busy(rank=rank, what=what, where=told[-1].where)


def by_downloads(messages: list[LogMessage]) -> Iterator[Busy]:
    """Yield the last downloads of data that did not answer, by lines of no rank, where no step was made since.

    One of each rank that such a line names, and one of lines that name none.
    """
    told: dict[int | None, Busy] = {}
    for message in reversed(messages):
        if WENT_ON.search(message.text):
            break
        may_tell = any(word in message.text for word in _MAY_ASK) and message.rank is None
        if may_tell and (asked := _DOWNLOADS.search(message.text)):
            ranks = {int(one["rank"]) for one in RANK_OF_JOB.finditer(message.text)}
            rank = ranks.pop() if len(ranks) == 1 else None
            url = next(filter(None, asked.groups()))
            told.setdefault(rank, Busy(rank=rank, what=f"{DOWNLOAD} ({url[-80:]})", where=message.where))
    yield from told.values()


def _retried(words: list[LogMessage]) -> LogMessage | None:
    """Return the write that a rank retries, where that, or how much it has written of it, is its last word."""
    rest = words[:-1] if words and _is_writing(words[-1].text) and not _RETRIED.search(words[-1].text) else words
    return rest[-1] if rest and _RETRIED.search(rest[-1].text) else None


def _is_writing(text: str) -> bool:
    """Whether a line counts what has been written so far, which is not all, or tells of a write that is retried."""
    counted = _WRITTEN.search(text)
    return (counted is not None and int(counted["done"]) < int(counted["all"])) or _RETRIED.search(text) is not None


def _reads(text: str) -> bool:
    """Whether a program says that it reads its data, or how many of them it has read, which are not all."""
    counted = _COUNTED_DATA.search(text) if not _OF_MODEL.search(text) else None
    read = counted is not None and int(counted["done"]) < int(counted["all"])
    return read or _READS.search(text) is not None or _waits_long(text)


def _waits_long(text: str) -> bool:
    """Whether a program says that it waits for its data, and for how long, as none does that makes steps."""
    told = found.groupdict() if (found := _WAITS.search(text)) else {}
    times = ((told.get(name), told.get(f"{name}_unit")) for name in ("before", "behind", "none", "late"))
    lasted_s = next((float(time) * _UNITS_S[unit[0].lower()] for time, unit in times if time and unit), 0.0)
    return lasted_s >= _LONG_S

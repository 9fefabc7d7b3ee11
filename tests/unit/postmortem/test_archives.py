"""Archives of logs: read as the folder that was packed; what is broken, hostile or too large is named."""

import io
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pytest

from meshwright.errors import InputError
from meshwright.postmortem import archives
from meshwright.postmortem.inputs import examine_files

from .made import answer, raised, timed_out, told

LOGS = {
    "job/rank0.log": timed_out(0, 7, prefix=False),
    "job/rank1.log": "\n".join(line.removeprefix("[rank1]: ") for line in raised(1, "KeyError: 'x'")),
    "job/rank2.log": timed_out(2, 7, prefix=False),
}


def zipped(path, members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return path


def taped(path, members, *, mode="w:gz"):
    with tarfile.open(path, mode) as archive:
        for name, text in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


@pytest.mark.parametrize("name", ["logs.zip", "logs.tar", "logs.tar.gz", "logs.TGZ", "logs.tar.xz"])
@pytest.mark.parametrize("in_folder", [False, True], ids=["named", "in a folder"])
def test_an_archive_is_read_as_the_folder_that_was_packed(name, in_folder, tmp_path):
    mode = {"zip": "", "tar": "w", "xz": "w:xz"}.get(name.rsplit(".", 1)[-1], "w:gz")
    path = taped(tmp_path / name, LOGS, mode=mode) if mode else zipped(tmp_path / name, LOGS)

    verdict = examine_files([tmp_path if in_folder else path])

    assert told(verdict, answer("exception", 1, 7)) == answer("exception", 1, 7)
    assert f"{name}/job/rank1.log" in {line.file for line in verdict.evidence}


def test_an_archive_beside_logs_counts_with_them(tmp_path):
    (tmp_path / "rank0.log").write_text(LOGS["job/rank0.log"])
    zipped(tmp_path / "rank1.zip", {"train.log": LOGS["job/rank1.log"]})

    verdict = examine_files([tmp_path])

    assert told(verdict, answer("exception", 1, 7)) == answer("exception", 1, 7)
    assert {line.file for line in verdict.evidence} >= {"rank1.zip/train.log"}


def test_nothing_is_written_outside_of_the_place_for_members_and_nothing_stays(tmp_path, monkeypatch):
    members = {"../../up.log": "x", "/abs.log": "x", ".hidden": "x", "in.zip": "x", "a/rank0.log": "KeyError: 'x'"}
    path = taped(tmp_path / "logs.tar", members, mode="w")

    with archives.unpacked([path]) as found:
        kept = list(found.files)

        assert list(found.names.values()) == ["logs.tar/a/rank0.log"]
        assert kept[0].read_text() == "KeyError: 'x'"
    assert not kept[0].exists()
    assert not (Path(tempfile.gettempdir()) / "up.log").exists()


def test_links_in_an_archive_are_left_in_it(tmp_path):
    path = tmp_path / "logs.tar"
    with tarfile.open(path, "w") as archive:
        link = tarfile.TarInfo("rank0.log")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)

    with pytest.raises(InputError, match="nothing could be read"):
        examine_files([path])


def test_an_archive_that_is_cut_off_is_named_beside_what_can_be_read(tmp_path):
    path = taped(tmp_path / "more.tar.gz", LOGS)
    path.write_bytes(path.read_bytes()[:60])
    (tmp_path / "rank0.log").write_text(LOGS["job/rank0.log"])

    verdict = examine_files([tmp_path])

    assert any("more.tar.gz: not a whole archive" in what for what in verdict.missing)


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MOST_BYTES", 100)
    path = zipped(tmp_path / "logs.zip", {"rank0.log": "x" * 101})

    with pytest.raises(InputError, match=r"logs\.zip: more than"):
        examine_files([path])


def test_a_member_that_cannot_be_read_is_named_inside_its_archive(tmp_path):
    path = zipped(tmp_path / "logs.zip", {"rank0.log": "\0\1\2", "rank1.log": "[rank1]: KeyError: 'x'"})

    verdict = examine_files([path])

    assert "logs.zip/rank0.log: neither text nor a flight record" in verdict.missing

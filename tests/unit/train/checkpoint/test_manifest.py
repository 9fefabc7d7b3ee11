"""A manifest that does not add up, or leads out of its folder, is refused before anything is read."""

import os

import msgspec
import pytest
import xxhash

from meshwright.errors import InputError
from meshwright.train.checkpoint.manifest import MANIFEST, read_manifest
from meshwright.train.checkpoint.stored import verify_pieces
from tests.unit.train.checkpoint.samples import whole_tensors, write_checkpoint

FILE = "rank-00000.safetensors"


@pytest.fixture
def path(tmp_path):
    return write_checkpoint(tmp_path / "c", whole_tensors(), "rows", ranks=2)


def rewrite(path, change):
    """Change the data of a manifest and sign it anew, as an attacker would."""
    data = msgspec.json.decode((path / MANIFEST).read_bytes())
    data.pop("xxh3_128")
    change(data)
    body = msgspec.json.format(msgspec.json.encode(data), indent=2).removesuffix(b"\n}") + b",\n"
    (path / MANIFEST).write_bytes(body + b'  "xxh3_128": "%s"\n}\n' % xxhash.xxh3_128_hexdigest(body).encode())


def rename(name):
    def change(data):
        data["files"][name] = data["files"].pop(FILE)
        for tensor in data["tensors"].values():
            for piece in tensor["pieces"]:
                piece["file"] = name if piece["file"] == FILE else piece["file"]

    return change


def set_piece(key, value):
    def change(data):
        data["tensors"]["a.weight"]["pieces"][0][key] = value

    return change


@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/x.safetensors", "a/b.safetensors", ".x", "x.pt", ""])
def test_a_file_name_never_leaves_the_folder(path, name):
    rewrite(path, rename(name))

    with pytest.raises(InputError, match="manifest.json"):
        read_manifest(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_piece("offset", [0, 0, 0]), "number of dimensions"),
        (set_piece("offset", [9, 0]), "leaves its shape"),
        (set_piece("shape", [2**40, 2**40]), "elements"),
        (set_piece("shape", [2**62, 4]), "elements"),
        (set_piece("byte_offset", 0), "overlap or leave a hole"),
        (set_piece("byte_offset", -1), "manifest.json"),
        (set_piece("file", "other.safetensors"), "not among its files"),
        (set_piece("xxh3_128", "0"), "manifest.json"),
        (lambda data: data["files"][FILE].update(size_bytes=10**15), "its pieces end at"),
        (lambda data: data["tensors"]["a.weight"].update(dtype="O"), "expected one of F64"),
        (lambda data: data["tensors"]["a.weight"].update(shape=[12, 10] + [1] * 40), "manifest.json"),
        (
            lambda data: data["tensors"]["a.weight"]["pieces"].append(data["tensors"]["a.weight"]["pieces"][0]),
            "element",
        ),
        (lambda data: data["tensors"]["a.weight"]["pieces"].reverse(), None),
        (lambda data: data.update(schema="meshwright.checkpoint/9"), "schema"),
        (lambda data: data.update(code="import os"), "unknown key code"),
    ],
)
def test_sizes_that_do_not_add_up_are_refused(path, change, message):
    rewrite(path, change)

    if message is None:
        verify_pieces(path, read_manifest(path))
    else:
        with pytest.raises(InputError, match=message):
            read_manifest(path)


def test_a_header_that_says_more_than_the_file_holds_is_refused_before_it_is_read(path):
    grow = 2**50

    def change(data):
        data["files"][FILE]["size_bytes"] += grow
        data["files"][FILE]["header_bytes"] += grow
        for tensor in data["tensors"].values():
            for piece in tensor["pieces"]:
                piece["byte_offset"] += grow * (piece["file"] == FILE)

    rewrite(path, change)

    with pytest.raises(InputError, match=f"{FILE}.*truncated"):
        verify_pieces(path, read_manifest(path))


def test_links_pipes_and_folders_in_place_of_files_are_refused(path, tmp_path):
    (path / FILE).rename(tmp_path / "elsewhere")
    for make in (
        lambda: (path / FILE).symlink_to(tmp_path / "elsewhere"),
        lambda: os.mkfifo(path / FILE),
        lambda: (path / FILE).mkdir(),
    ):
        make()
        with pytest.raises(InputError, match=FILE):
            verify_pieces(path, read_manifest(path))
        (path / FILE).rmdir() if (path / FILE).is_dir() else (path / FILE).unlink()


def test_a_key_given_twice_is_refused(path):
    raw = (path / MANIFEST).read_bytes().rpartition(b'  "xxh3_128"')[0]
    body = raw.replace(b'"files": {', b'"files": {},\n  "files": {', 1)
    (path / MANIFEST).write_bytes(body + b'  "xxh3_128": "%s"\n}\n' % xxhash.xxh3_128_hexdigest(body).encode())

    with pytest.raises(InputError, match="'files' is given twice"):
        read_manifest(path)

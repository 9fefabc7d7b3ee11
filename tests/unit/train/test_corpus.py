"""The corpus: what is read, what is held out, and in which order it is seen."""

import itertools

import numpy as np
import pytest

from meshwright.errors import InputError
from meshwright.layout import Layout
from meshwright.train.data.corpus import (
    SEPARATOR,
    Sampler,
    find_files,
    load_corpus,
    split_files,
    standard_library,
    tokenize,
    tokenized,
    validation_sequences,
)
from meshwright.train.job.config import DataConfig
from meshwright.train.prepare import corpus_lines
from meshwright.train.run.run_lock import owned
from testkit.train_jobs import small_job, write_run


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "text"
    for number in range(40):
        path = root / f"part{number % 3}" / f"file{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"number = {number}\n" * 20)
    (root / "site-packages").mkdir()
    (root / "site-packages" / "other.py").write_text("x\n")
    return root


def test_the_standard_library_is_the_default_and_site_packages_are_left_out():
    files = find_files([], "*.py")

    assert standard_library() / "abc.py" in [file for _, file in files]
    assert not [file for _, file in files if "site-packages" in file.parts]


def test_whole_files_are_held_out_and_no_file_is_in_both_parts(folder):
    files = find_files([str(folder)], "*.py")
    split = split_files(files, 0.2)

    assert len(files) == 40
    assert set(split.train) | set(split.validation) == set(files)
    assert not set(split.train) & set(split.validation)
    assert 1 <= len(split.validation) <= 20


def test_what_is_held_out_does_not_depend_on_where_the_folder_lies(folder, tmp_path):
    before = [f.name for _, f in split_files(find_files([str(folder)], "*.py"), 0.2).validation]
    folder.rename(tmp_path / "moved")
    after = [f.name for _, f in split_files(find_files([str(tmp_path / "moved")], "*.py"), 0.2).validation]

    assert before == after


def test_byte_tokens_are_the_bytes_with_a_separator_after_each_file(folder, tmp_path):
    files = find_files([str(folder)], "*.py")[:3]
    tokens = tokenize(files, "bytes", tmp_path / "cache")

    assert tokens.tobytes() == b"".join(file.read_bytes() + bytes([SEPARATOR]) for _, file in files)
    assert isinstance(tokens, np.memmap)


def test_a_changed_file_is_tokenised_again(folder, tmp_path):
    files = find_files([str(folder)], "*.py")[:2]
    before = tokenize(files, "bytes", tmp_path / "cache")
    files[0][1].write_text("something else entirely\n")

    assert tokenize(files, "bytes", tmp_path / "cache").tobytes() != before.tobytes()


def test_a_hugging_face_tokenizer_is_used(folder, tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"number": 0, "=": 1, "[UNK]": 2}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    tokens = tokenize(find_files([str(folder)], "*.py")[:1], str(tmp_path / "tokenizer.json"), tmp_path / "cache")

    assert tokens[:3].tolist() == [0, 1, 2]


def test_a_file_that_is_no_tokenizer_is_refused(folder, tmp_path):
    (tmp_path / "tokenizer.json").write_text('{"hello": 1}')

    with pytest.raises(InputError, match=r"not a tokenizer.json"):
        tokenize(find_files([str(folder)], "*.py"), str(tmp_path / "tokenizer.json"), tmp_path / "cache")


def test_every_window_is_seen_once_an_epoch_in_an_order_of_seed_and_index_alone():
    tokens = np.arange(1000, dtype=np.uint32)
    sampler = Sampler(tokens, seq_len=10, seed=3)
    epoch = sampler.sequences(range(98))

    starts = sorted(row[0] for row in epoch)
    assert [b - a for a, b in itertools.pairwise(starts)] == [10] * 97
    assert (Sampler(tokens, seq_len=10, seed=3).sequences([70, 5]) == epoch[[70, 5]]).all()
    assert (Sampler(tokens, seq_len=10, seed=4).sequences(range(98)) != epoch).any()
    assert (sampler.sequences(range(98, 196)) != epoch).any()
    assert (np.diff(epoch, axis=1) == 1).all()


def test_validation_sequences_are_spread_and_do_not_overlap():
    tokens = np.arange(1001, dtype=np.uint32)
    rows = validation_sequences(tokens, seq_len=10, count=7)

    assert rows.shape == (7, 11)
    assert rows[0, 0] == 0
    assert rows[-1, -1] == 1000
    assert (np.diff(rows[:, 0]) >= 10).all()


def test_the_end_of_a_single_file_is_held_out(tmp_path):
    path = tmp_path / "book.txt"
    path.write_bytes(bytes(range(1, 251)) * 8)
    corpus = load_corpus(DataConfig(paths=(str(path),), validation_share=0.1, seq_len=32), tmp_path / "cache")

    assert len(corpus.train) + len(corpus.validation) == 2001
    assert len(corpus.validation) == 200


@pytest.mark.parametrize("damage", ["truncated", "zeros of the same size", "emptied", "a bit", "of an older version"])
def test_a_damaged_cache_of_tokens_is_made_anew_with_a_warning(tmp_path, capsys, damage):
    (tmp_path / "a.py").write_text("some text\n" * 50)
    files, cache = find_files([str(tmp_path / "a.py")], "*.py"), tmp_path / "cache"
    good = tokenized(files, "bytes", cache)
    expected, checksum = good.tokens.tobytes(), good.checksum
    [path] = cache.iterdir()
    data = path.read_bytes()
    broken = {
        "truncated": data[:100],
        "zeros of the same size": bytes(len(data)),
        "emptied": b"",
        "a bit": data[:5] + b"!" + data[6:],
        "of an older version": data[: len(expected)],
    }
    del good
    path.write_bytes(broken[damage])

    again = tokenized(files, "bytes", cache)

    assert (again.tokens.tobytes(), again.checksum) == (expected, checksum)
    assert f"warning: {path}: damaged; the corpus is tokenised anew" in capsys.readouterr().err
    assert tokenized(files, "bytes", cache).checksum == checksum
    assert not capsys.readouterr().err


def test_the_content_of_a_corpus_is_that_of_its_tokens_wherever_they_lie(tmp_path):
    def content(name, text):
        folder = tmp_path / name
        folder.mkdir()
        for number in range(12):
            (folder / f"{number}.py").write_text(f"{text} {number}\n" * 40)
        return load_corpus(
            DataConfig(paths=(str(folder),), validation_share=0.2, seq_len=32), tmp_path / "cache"
        ).content

    assert content("here", "text") == content("there", "text") != content("elsewhere", "other")


def test_the_cache_of_another_corpus_under_this_ones_name_is_made_anew(tmp_path, capsys):
    cache = tmp_path / "cache"
    for name in ("a", "b"):
        (tmp_path / f"{name}.py").write_text(f"some text of {name}\n" * 50)
        tokenized(find_files([str(tmp_path / f"{name}.py")], "*.py"), "bytes", cache)
    first, second = sorted(cache.iterdir())
    first_bytes = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(first_bytes)

    for name in ("a", "b"):
        again = tokenized(find_files([str(tmp_path / f"{name}.py")], "*.py"), "bytes", cache)
        assert again.tokens.tobytes().startswith(f"some text of {name}\n".encode())
    assert capsys.readouterr().err.count("damaged") == 2


def test_a_file_that_goes_while_the_corpus_is_looked_through_is_named(tmp_path):
    (tmp_path / "a.py").write_text("some text\n" * 50)
    files = find_files([str(tmp_path / "a.py")], "*.py")
    (tmp_path / "a.py").unlink()

    with pytest.raises(InputError, match=r"data.paths: .*a\.py: No such file"):
        tokenized(files, "bytes", tmp_path / "cache")


def test_what_runs_write_below_the_corpus_is_none_of_it(folder):
    before = find_files([str(folder)], "*")
    planned = folder / "runs" / "planned"
    run = write_run(folder / "runs" / "trained", small_job(str(folder)), Layout(dp=2, mbs=2))
    planned.mkdir()
    with owned(planned):
        assert find_files([str(folder)], "*") == before

    assert run.path / "corpus.txt" in [file for _, file in find_files([str(run.path)], "*.txt")]


def test_what_is_held_out_of_a_file_alone_is_said_to_be_its_end(tmp_path):
    (tmp_path / "tale.txt").write_text("once upon a time " * 100)
    alone = load_corpus(DataConfig(paths=(str(tmp_path / "tale.txt"),), seq_len=32), tmp_path / "cache")

    assert corpus_lines(alone) == [
        "corpus: 1 file, 1,616 tokens; held out: its end, 85 tokens",
        "  trained on: tale.txt",
        "  held out: the end of tale.txt",
    ]


def test_files_that_are_held_out_whole_are_named(tmp_path):
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("once upon a time " * 100)
    two = load_corpus(DataConfig(paths=(str(tmp_path),), seq_len=32, validation_share=1e-9), tmp_path / "cache")

    assert corpus_lines(two) == [
        "corpus: 1 file, 1,701 tokens; held out: 1 file, 1,701 tokens",
        "  trained on: a.py",
        "  held out: b.py",
    ]


def test_a_folder_of_other_text_is_told_the_pattern_of_most_of_its_files(tmp_path):
    for name in ("one.txt", "two.txt", "three.md", "LICENSE"):
        (tmp_path / name).write_text("words\n")
    with pytest.raises(InputError, match=r'data.pattern says which are text, such as --set data.pattern="\*.txt"'):
        find_files([str(tmp_path)], "*.py")


def test_a_folder_of_files_without_endings_gets_no_example(tmp_path):
    (tmp_path / "LICENSE").write_text("words\n")
    with pytest.raises(InputError, match=r"data.pattern says which are text$"):
        find_files([str(tmp_path)], "*.py")

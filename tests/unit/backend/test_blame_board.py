from meshwright.backend.faults.blame_board import Word, word_in
from meshwright.backend.faults.failures import FaultyRank


def test_a_word_is_read_as_it_was_written():
    for final in (True, False):
        word = Word(FaultyRank(3, "node2", 4711, "stopped in the middle of send: ValueError: no 3 of 4"), final)

        assert word_in(word.line()) == word


def test_of_a_long_word_only_the_end_is_lost():
    word = Word(FaultyRank(3, "node2", 4711, "x" * 1000), True)

    assert word_in(word.line()[:100]).culprit[:3] == word.culprit[:3]

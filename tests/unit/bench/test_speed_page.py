"""The page of collectives on one host says what was not measured on the make of machine that its pictures are of."""

from benchmarks.speed_page import most_ranks, ranks_not_measured


def made_of(**ranks):
    return [
        {"machine": {"make": make}, "rows": [{"ranks": number} for number in found]} for make, found in ranks.items()
    ]


def test_ranks_that_only_another_make_has_are_named():
    (line, blank) = ranks_not_measured(made_of(old=(2, 4, 8), new=(2,)), "new")

    assert line.startswith("With 4 and 8 ranks nothing has been measured on this make")
    assert blank == ""


def test_nothing_is_said_of_a_make_that_has_them_all():
    assert ranks_not_measured(made_of(old=(2, 4), new=(2,)), "old") == []


def test_a_make_without_rows_has_none_of_them():
    assert ranks_not_measured(made_of(old=(2,)), "new")[0].startswith("With 2 ranks")


def test_pictures_are_of_the_make_with_most_numbers_of_ranks_and_of_the_newest_of_equals():
    def make(name, *ranks):
        return {"machine": {"make": name}, "rows": [{"ranks": number, "buffers": "warm"} for number in ranks]}

    makes = [make("newest", 2), make("newer", 2, 4), make("old", 2, 4)]

    assert most_ranks(makes)["machine"]["make"] == "newer"

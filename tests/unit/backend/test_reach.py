"""Ranks that share memory: their socket is reached, of the same user, and on the same pretended host."""

import contextlib

import pytest

from meshwright.backend.local import reach
from meshwright.backend.local.reach import ProcessPlace, RankSocket


@contextlib.contextmanager
def doors(count, pretended=(), machine="m"):
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(RankSocket(rank, count)) for rank in range(count)]
        names = pretended or [""] * count
        yield (
            found,
            [ProcessPlace(door=d.name, pretended=name, machine=machine) for d, name in zip(found, names, strict=True)],
        )


def test_each_joins_the_lowest_that_it_reaches():
    with doors(3) as (found, places):
        reached = [door.look(places) for door in found]

        assert [(each.network, each.leader, each.why) for each in reached] == [(0, 0, "")] * 3
        assert [door.connection is not None for door in found] == [False, True, True]


def test_pretended_hosts_share_no_memory_but_the_network_and_nobody_is_warned():
    with doors(4, ["a", "b", "a", "b"]) as (found, places):
        reached = [door.look(places) for door in found]

        assert [each.leader for each in reached] == [0, 1, 0, 1]
        assert [each.network for each in reached] == [0] * 4
        assert not any(each.why for each in reached)


@pytest.mark.parametrize(("machine", "warned"), [("m", True), ("", False)])
def test_a_rank_that_is_not_reached_is_told_of_where_it_looks_as_if_it_were_here(machine, warned):
    with doors(2, machine=machine) as (found, places):
        found[0].close()
        reached = found[1].look(places)

        assert (reached.network, reached.leader) == (1, 1)
        assert reached.why.startswith("rank 0 is not reached over its abstract Unix socket") == warned


def test_the_memory_of_another_user_is_not_asked_for(monkeypatch):
    with doors(3) as (found, places):
        monkeypatch.setattr(reach, "user_of", lambda connection: 54321)
        reached = found[2].look(places)

        assert (reached.network, reached.leader) == (0, 2)
        assert reached.why.startswith("rank 0 is of user 54321, this one of")


def test_without_a_socket_a_rank_is_alone(monkeypatch):
    def denied(*arguments):
        raise PermissionError(1, "Operation not permitted")

    with doors(2) as (found, places):
        monkeypatch.setattr(reach.socket, "socket", denied)
        closed = RankSocket(1, 2)
        reached = closed.look([places[0], ProcessPlace(door=closed.name, pretended="", machine="m")])

        assert (closed.name, reached.leader) == ("", 1)
        assert "Operation not permitted" in reached.why
        assert found[0].look(places).leader == 0


def test_another_look_lets_go_of_the_rank_that_an_earlier_try_found():
    with doors(3) as (found, places), doors(1) as (_, (stranger,)):
        found[2].look([stranger, *places[1:]])
        first = found[2].connection
        found[2].look(places)

        assert first.fileno() == -1
        assert found[2].connection is not None


def test_more_ranks_than_may_stand_before_a_door_come_in_all_the_same():
    with doors(2) as (found, places):
        found[0]._listener.listen(1)
        crowd = [found[1]._knock(found[0].name) for _ in range(2)]
        reached = found[1].look(places)

        assert (reached.leader, found[1].connection) == (0, None)
        for end in crowd:
            found[0].accept(1.0).close()
            end.close()
        assert found[1].greet(reach.time.monotonic() + 5) is found[1].connection

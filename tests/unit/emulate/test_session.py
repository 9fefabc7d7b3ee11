import contextlib
import select

from meshwright.cluster.emulation import Emulation, EmulationSpec, protocol


def test_exit_codes_are_of_one_moment_and_what_ends_after_it_wakes_who_waits():
    """An end that is heard of while the codes are read must not be lost: the launcher sleeps until the next one."""
    emulation = Emulation(EmulationSpec(nodes=2))
    emulation._socket, theirs = protocol.pair()

    def programs_that_end_while_they_are_asked():
        yield 1
        for program in (1, 2):
            protocol.send_message(theirs, {"id": program, "code": 0})
        yield 2

    with contextlib.closing(emulation._socket), contextlib.closing(theirs):
        assert emulation.exit_codes(programs_that_end_while_they_are_asked()) == [None, None]
        assert select.select([emulation], [], [], 0)[0]
        assert emulation.exit_codes([1, 2]) == [0, 0]

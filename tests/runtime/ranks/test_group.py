"""Ranks find each other, add, agree, and end together with one message."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from ranks.together import SECRET, free_port, places, together, total

from dslc.base.errors import RanksError, ResourceError
from dslc.base.version import VERSION
from dslc.runtime.ranks.contract import Place
from dslc.runtime.ranks.group import Group
from dslc.runtime.ranks.join import Joined, join
from dslc.runtime.ranks.sockets import dialled
from dslc.runtime.ranks.wire import WireError, admit, deadline, greet, receive_text, send_text, swap
from dslc.runtime.session.calls.shard_sum import added


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("length", [0, 3, 100_003])
def test_the_total_is_that_of_the_tree_on_every_rank(size: int, length: int, fuzz_seed: int) -> None:
    rng = np.random.default_rng(fuzz_seed)
    vectors = (rng.normal(size=(size, length)) * 10.0 ** rng.integers(-6, 6, (size, length))).astype(np.float32)
    numbers = rng.normal(size=(size, 2, 3))
    done = together(places(size), lambda group: total(group, vectors[group.rank].copy(), numbers[group.rank]))
    for each in done:
        found, rows = each.result()
        assert found.tobytes() == added(list(vectors)).tobytes()
        assert rows.tobytes() == numbers.tobytes()


def test_rows_are_gathered_in_the_order_of_ranks() -> None:
    done = together(places(4), lambda group: group.gathered(np.full(3, group.rank, np.uint8)))
    assert all(each.result().tolist() == [[rank] * 3 for rank in range(4)] for each in done)


def test_ranks_that_differ_are_named_on_all() -> None:
    def work(group: Group) -> None:
        group.agree({"the artifact": "a", "the data": "x" if group.rank == 2 else "d"})

    for each in together(places(4), work):
        error = each.exception()
        assert isinstance(error, RanksError) and error.code == "R602"
        assert error.message == "the data of rank 2 is x, that of rank 0 is d"


def test_what_only_one_rank_has_differs() -> None:
    def work(group: Group) -> None:
        group.agree({"the artifact": "a", **({"`train.seed`": "1"} if group.rank == 1 else {})})

    for each in together(places(2), work):
        error = each.exception()
        assert isinstance(error, RanksError)
        assert error.message == "`train.seed` of rank 1 is 1, that of rank 0 is not set"


def test_ranks_that_agree_go_on() -> None:
    def work(group: Group) -> dict[str, object]:
        group.agree({"the artifact": "a"})
        if group.rank == 0:
            group.command({"do": "something", "lr": 0.1}, [np.arange(5.0), np.zeros(0)])
            return {}
        said, into = group.commanded(), [np.empty(5), np.empty(0)]
        group.take(into)
        return {**said, "sum": float(into[0].sum())}

    done = [each.result() for each in together(places(3), work)]
    assert done[1:] == [{"do": "something", "lr": 0.1, "sum": 10.0}] * 2


@pytest.mark.parametrize("failing", [0, 2])
def test_an_error_of_one_rank_ends_all_with_its_words(failing: int) -> None:
    def work(group: Group) -> None:
        group.agree({})
        if group.rank == failing:
            raise ResourceError("R402", "no space left", help="free some space")
        total(group, np.zeros(1000, np.float32), np.zeros((1, 1)))

    begun = time.monotonic()
    done = together(places(4), work)
    assert time.monotonic() - begun < 45
    for rank, each in enumerate(done):
        error = each.exception()
        if rank == failing:
            assert isinstance(error, ResourceError)
        else:
            assert isinstance(error, RanksError) and error.exit_code == 75
            assert error.message == f"rank {failing} of 4 has ended: R402: no space left"
            assert error.help == "free some space"


def test_a_rank_that_vanishes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connections close without a word, as after SIGKILL."""

    def work(group: Group) -> None:
        group.agree({})
        if group.rank == 1:
            group._watch._closing.set()
            for link in (*group._control.values(), *group._data.values()):
                link.shutdown(socket.SHUT_RDWR)
            return
        total(group, np.zeros(1000, np.float32), np.zeros((1, 1)))

    done = together(places(3), work)
    for rank in (0, 2):
        error = done[rank].exception()
        assert isinstance(error, RanksError) and error.message.startswith("rank 1 of 3 has ended")


@pytest.mark.parametrize("silent", [0, 1])
def test_a_rank_that_is_silent_is_named(silent: int) -> None:
    """Its connections stay open, as after SIGSTOP."""
    over = threading.Event()

    def work(group: Group) -> None:
        group.agree({})
        if group.rank == silent:
            group._watch._closing.set()  # it stops telling that it lives
            over.wait(60)
            return
        try:
            total(group, np.zeros(1000, np.float32), np.zeros((1, 1)))
        finally:
            over.set()

    begun = time.monotonic()
    done = together(places(2, seconds=1.0), work)
    assert time.monotonic() - begun < 45
    error = done[1 - silent].exception()
    assert isinstance(error, RanksError) and f"rank {silent} of 2 has ended: it was silent for 1 s" in error.message


def test_a_rank_that_lives_but_takes_no_part_is_named() -> None:
    over = threading.Event()

    def work(group: Group) -> None:
        group.agree({})
        if group.rank == 2:
            over.wait(20)
            return
        try:
            total(group, np.zeros(1000, np.float32), np.zeros((1, 1)))
        finally:
            over.set()

    done = together(places(3, step_seconds=1.0), work)
    for rank in (0, 1):
        error = done[rank].exception()
        assert isinstance(error, RanksError)
        assert error.message == "rank 2 of 3 has ended: it did not take its part of a step in 1 s"


def test_a_wrong_number_of_processes_is_told_to_all() -> None:
    there = places(3, start_seconds=5.0)
    there[2] = replace(there[2], size=4)
    for each in together(there, lambda group: None):
        error = each.exception()
        assert isinstance(error, RanksError) and error.code == "R601"
        assert error.message == "rank 2 expects 4 processes, and rank 0 3" and error.place == "WORLD_SIZE"


def test_a_rank_that_comes_after_a_mistake_is_told() -> None:
    there = places(3, start_seconds=5.0)
    there[2] = replace(there[2], size=4)
    with ThreadPoolExecutor(3) as pool:
        early = [pool.submit(Group, place) for place in (there[0], there[2])]
        time.sleep(0.5)
        for each in (*early, pool.submit(Group, there[1])):
            error = each.exception(timeout=10)
            assert isinstance(error, RanksError) and error.message == "rank 2 expects 4 processes, and rank 0 3"


def with_a_strange_rank(behave: Callable[[Place], None], **changed: Any) -> list[BaseException | None]:
    """How ranks 0 and 1 of three end while ``behave`` is rank 2."""
    there = places(3, **changed)
    with ThreadPoolExecutor(3) as pool:
        others = [pool.submit(Group, place) for place in there[:2]]
        pool.submit(behave, there[2]).result()
        return [each.exception(timeout=15) for each in others]


def hello(place: Place, **changed: Any) -> socket.socket:
    """Join as far as the first message."""
    link = dialled((place.host, place.port), deadline(10), lambda: None)
    greet(link, SECRET, place.rank)
    send_text(link, {"dslc": VERSION, "size": place.size, "port": 1, **changed})
    return link


def leave(joined: Joined) -> None:
    joined.gate.close()
    joined.control[0].close()


def test_a_rank_that_ends_while_others_join_is_named() -> None:
    """They do not wait for another one in its place."""
    there = places(4, start_seconds=30.0)
    with ThreadPoolExecutor(2) as pool:
        others = [pool.submit(Group, place) for place in there[:2]]
        hello(there[2]).close()
        errors = [each.exception(timeout=10) for each in others]
    for error in errors:
        assert isinstance(error, RanksError) and error.code == "R603"
        assert error.message == "rank 2 of 4 has ended: it closed the connection while others joined"


def test_a_rank_that_ends_when_all_have_joined_is_named() -> None:
    def behave(place: Place) -> None:
        leave(join(place))

    for error in with_a_strange_rank(behave, start_seconds=30.0):
        assert isinstance(error, RanksError) and error.message.startswith("rank 2 of 3 has ended: ")


def test_a_rank_that_is_stopped_when_all_have_joined_is_named() -> None:
    """Its gate takes connections, as that of a stopped process."""
    kept: list[Joined] = []
    for error in with_a_strange_rank(lambda place: kept.append(join(place)), start_seconds=30.0, seconds=1.0):
        assert isinstance(error, RanksError) and error.message == "rank 2 of 3 has ended: it was silent for 1 s"
    leave(kept[0])


def test_another_version_is_told_to_all() -> None:
    """Before anything else is said, as the rest may have changed."""
    kept: list[socket.socket] = []
    for error in with_a_strange_rank(lambda place: kept.append(hello(place, dslc="9.9", size="?"))):
        assert isinstance(error, RanksError) and error.code == "R602"
        assert error.message == f"rank 2 has dslc 9.9, and rank 0 {VERSION}"
    kept[0].close()


def test_ranks_join_by_ipv6() -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6")
    there = [replace(place, host="::1") for place in places(4)]
    done = together(there, lambda group: total(group, np.ones(4, np.float32), np.zeros((1, 1)))[0].sum())
    assert [each.result() for each in done] == [16.0] * 4


@pytest.mark.parametrize("host", ["no.such.host.invalid", "a" * 80, ""])
def test_a_host_that_is_not_known(host: str) -> None:
    """Rank 0 says so at once; the others try until the end of the time, as a name may become known."""
    for place in places(2, start_seconds=1.0):
        with pytest.raises(RanksError) as caught:
            join(replace(place, host=host or "."))
        assert caught.value.code == "R601"
        said = f"the host {host or '.'} is not known" if place.rank == 0 else "rank 1 cannot join rank 0: "
        assert said in caught.value.message


def test_a_rank_with_another_secret_is_told_on_both_sides() -> None:
    there = places(2, start_seconds=2.0)
    there[1] = replace(there[1], secret=b"another secret of the tests")
    one, other = (each.exception() for each in together(there, lambda group: None))
    assert isinstance(one, RanksError) and one.message.endswith("missing: 1; 1 connection had another secret")
    assert isinstance(other, RanksError) and other.message.endswith("it closed the connection, as with another secret")


def test_a_rank_that_does_not_come_is_named() -> None:
    there = places(3, start_seconds=1.0)
    for each in together(there[:2], lambda group: None):
        error = each.exception()
        assert isinstance(error, RanksError) and "missing: 2" in error.message


def test_two_processes_of_one_rank() -> None:
    there = places(3, start_seconds=5.0)
    there[2] = replace(there[2], rank=1)
    errors = [each.exception() for each in together(there, lambda group: None)]
    assert all(isinstance(error, RanksError) and error.code == "R601" for error in errors)
    assert "rank 1 came twice" in str(errors[0])


def test_a_port_in_use() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        place = replace(places(2)[0], port=other.getsockname()[1])
        with pytest.raises(RanksError) as caught:
            join(place)
    assert caught.value.code == "R601" and "cannot listen at port" in caught.value.message


def test_strangers_do_not_count() -> None:
    """Connections that say nothing, nonsense, or have another secret; the ranks join all the same."""
    there, over = places(2), threading.Event()

    def strange(first: bytes) -> None:
        while not over.is_set():
            try:
                with socket.create_connection(("127.0.0.1", there[0].port), 1) as link:
                    link.sendall(first)
                    link.settimeout(0.2)
                    link.recv(1000)
                    time.sleep(0.05)
            except OSError:
                time.sleep(0.02)

    strangers = [threading.Thread(target=strange, args=(first,)) for first in (os.urandom(68), b"GET / HTTP/1.1\r\n")]
    for each in strangers:
        each.start()
    try:
        done = together(there, lambda group: total(group, np.ones(4, np.float32), np.zeros((1, 1)))[0].sum())
        assert [each.result() for each in done] == [8.0, 8.0]
    finally:
        over.set()
        for each in strangers:
            each.join()


def test_another_secret_is_refused_on_both_sides() -> None:
    one, other = socket.socketpair()
    with one, other:
        seen: list[str] = []

        def accept() -> None:
            try:
                admit(one, SECRET)
            except WireError as error:
                seen.append(str(error))
            one.close()

        thread = threading.Thread(target=accept)
        thread.start()
        with pytest.raises(WireError):
            greet(other, b"another secret", 1)
        thread.join()
        assert seen == ["it has another secret"]


@pytest.mark.parametrize(
    "sent",
    [b"", b"\x00" * 16, b"dsl1\x01\x00\x00\x00" + (1 << 40).to_bytes(8, "little"),
     b"dsl1\x01\x00\x00\x00" + (3).to_bytes(8, "little") + b"[1]",
     b"dsl1\x01\x00\x00\x00" + (4).to_bytes(8, "little") + b"\xff{}}",
     b"dsl1\x01\x00\x00\x00" + (9000).to_bytes(8, "little") + b"[" * 9000],
)  # fmt: skip
def test_a_message_that_is_none(sent: bytes) -> None:
    one, other = socket.socketpair()
    with one, other:
        one.sendall(sent)
        one.shutdown(socket.SHUT_WR)
        with pytest.raises(WireError):
            receive_text(other)


def test_a_part_of_another_length_is_refused() -> None:
    one, other = socket.socketpair()
    with one, other:
        send_text(one, {})
        with pytest.raises(WireError) as caught:
            swap({1: other}, {}, {1: memoryview(bytearray(8))}, lambda waiting: None)
    assert caught.value.args[0] == 1 and "something else" in caught.value.args[1]


def test_a_free_port_is_free() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", free_port()))

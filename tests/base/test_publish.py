"""Publishing under kills, errors at every call, short writes, full disks, read-only folders and rival writers."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from interruption.injecting import Call, Injector, child, kill, passed
from interruption.publishing import NAMES, content, publish
from places import SUPPORT, with_support

from dslc.base import publish as module
from dslc.base.errors import ResourceError
from dslc.base.publish import folder_lock, publish_bytes, publish_files, sweep
from dslc.base.temps import sweep as sweep_module
from dslc.base.temps import temp as temp_module
from dslc.base.temps.temp import TEMP

SCRIPT = SUPPORT / "interruption" / "publishing.py"
KINDS = ("one", "stream", "many")


def prepared(folder: Path) -> Path:
    """A folder that holds an older publication and something of the user's."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in NAMES:
        (folder / name).write_bytes(content("old"))
    (folder / "net.safetensors").write_bytes(b"the user's")
    return folder


def whole(folder: Path) -> bool:
    """The commit file is the old or the new one, and the user's file is as it was."""
    return (folder / "net.dslc").read_bytes() in (content("old"), content("new")) and (
        folder / "net.safetensors"
    ).read_bytes() == b"the user's"


def temps(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if TEMP.fullmatch(name)]


def points(kind: str, tmp_path: Path) -> list[str]:
    """Every point that a publication passes, as NAME:N."""
    assert child(SCRIPT, (kind, prepared(tmp_path / "traced"), "new"), tmp_path / "trace", "trace") == 0
    return passed(tmp_path / "trace")


def kill_sweep(kind: str, tmp_path: Path) -> tuple[int, list[str]]:
    """(kills that fired, the points after which something was broken)."""
    fired, broken = 0, []
    for point in points(kind, tmp_path):
        folder = prepared(tmp_path / "killed")
        kill(SCRIPT, (kind, folder, "new"), tmp_path / "log", point)
        fired += 1
        if not whole(folder):
            broken.append(point)
            continue
        # The next run needs nothing done by hand, and clears what the dead left.
        publish(kind, folder, "new")
        if not whole(folder) or temps(folder) or len(os.listdir(folder)) != 4:
            broken.append(point)
    return fired, broken


@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_every_point(kind: str, tmp_path: Path) -> None:
    fired, broken = kill_sweep(kind, tmp_path)
    print(f"{kind}: {fired} kills")
    assert fired >= 7 and not broken


def test_the_kill_sweep_can_fail(tmp_path: Path) -> None:
    fired, broken = kill_sweep("naive", tmp_path)
    assert fired == 3 and "naive.write:2" in broken


CALLS: tuple[Call, ...] = (
    (os, "open"), (os, "write"), (os, "fsync"), (os, "replace"), (os, "unlink"), (os, "listdir"), (os, "stat"),
    (os, "fstat"), (os, "fstatvfs"), (fcntl, "flock"), (os, "ftruncate"), (os, "pwrite"),
)  # fmt: skip


def error_sweep(kind: str, tmp_path: Path, error: int) -> tuple[int, list[str]]:
    """Every call fails once: (faults fired, what was broken)."""
    broken: list[str] = []
    for number in range(1, 10_000):
        folder = prepared(tmp_path / "failing")
        raised: Exception | None = None
        with pytest.MonkeyPatch.context() as patch:
            injector = Injector(patch, CALLS, number, error)
            try:
                publish(kind, folder, "new")
            except (ResourceError, OSError) as caught:
                raised = caught
        if not injector.fired:
            return number - 1, broken
        name = f"call {number}, {injector.fired}"
        now = (folder / "net.dslc").read_bytes()
        if not whole(folder):
            broken.append(f"{name}: neither old nor new")
        elif raised is None:
            if now != content("new"):
                broken.append(f"{name}: said nothing, wrote nothing")
        elif not isinstance(raised, ResourceError) or raised.code not in ("R402", "R404", "R405"):
            broken.append(f"{name}: {raised!r}")
        elif (raised.code == "R405") != (now == content("new")):
            broken.append(f"{name}: {raised.code} with {now[:3]!r}")
        if injector.fired != "unlink" and temps(folder):
            broken.append(f"{name}: left a temp")
        publish(kind, folder, "new")
        if temps(folder):
            broken.append(f"{name}: the temp was never swept")
    raise AssertionError("the sweep never came to its end")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS, errno.EMFILE])
def test_an_error_at_every_call(kind: str, error: int, tmp_path: Path) -> None:
    fired, broken = error_sweep(kind, tmp_path, error)
    print(f"{kind}: {fired} faults")
    assert fired >= 11 and not broken, broken


def test_the_error_sweep_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: a writer that goes straight to the final name must be caught."""

    def deaf(path: Path, tag: str) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
        try:
            os.write(fd, content(tag))
        finally:
            os.close(fd)

    monkeypatch.setitem(globals(), "publish", lambda _, folder, tag: deaf(folder / "net.dslc", tag))
    fired, broken = error_sweep("naive", tmp_path, errno.EIO)
    assert fired == 2 and any("neither old nor new" in b for b in broken)


@pytest.mark.parametrize("action", ["enospc", "eio", "edquot", "erofs", "eacces", "emfile"])
def test_failpoints_raise_and_are_proven(action: str, tmp_path: Path) -> None:
    """In a real process: the error comes out as R402, the temp is gone, the log says that it fired."""
    for point in ("publish.write:1", "publish.fsync:1", "publish.rename:1"):
        folder, log = prepared(tmp_path / "out"), tmp_path / "log"
        assert child(SCRIPT, ("one", folder, "new"), log, f"{point}:{action}") == 1
        assert log.read_text().split() == [*point.split(":"), action]
        assert (folder / "net.dslc").read_bytes() == content("old") and not temps(folder)


def test_short_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[: max(1, len(data) // 3)]))
    publish_bytes(tmp_path / "a", content("new"))
    assert (tmp_path / "a").read_bytes() == content("new")
    monkeypatch.setattr(os, "write", lambda fd, data: 0)
    with pytest.raises(ResourceError):
        publish_bytes(tmp_path / "a", content("old"))
    assert (tmp_path / "a").read_bytes() == content("new")


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_size_limit(tmp_path: Path) -> None:
    folder = prepared(tmp_path / "out")
    with file_size_limit(10_000), pytest.raises(ResourceError) as caught:
        publish("one", folder, "new")
    assert caught.value.code == "R402" and "unchanged" in caught.value.message
    assert (folder / "net.dslc").read_bytes() == content("old") and not temps(folder)


def test_too_little_space_is_seen_before_the_first_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = prepared(tmp_path / "out")
    monkeypatch.setattr(module, "_free", lambda _: 100_000)
    monkeypatch.setattr(module, "Temp", None)  # nobody may get so far
    with pytest.raises(ResourceError) as caught:
        publish("one", folder, "new")
    assert "are needed, 100000 are free" in caught.value.message and "free some space" in str(caught.value.help)


def test_verify_can_stop_it(tmp_path: Path) -> None:
    folder, seen = prepared(tmp_path / "out"), []

    def verify(path: Path) -> None:
        seen.append(path.read_bytes())
        raise ResourceError("R402", "it does not read back")

    with pytest.raises(ResourceError):
        publish_bytes(folder / "net.dslc", content("new"), verify=verify)
    assert seen == [content("new")] and (folder / "net.dslc").read_bytes() == content("old")
    assert not temps(folder)


def test_modes(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        publish_bytes(tmp_path / "a", b"1")
        publish_bytes(tmp_path / "b", b"1", private=True)
        publish_files(tmp_path, {"c": b"1", "d": b"2"}, "d")
    finally:
        os.umask(old)
    assert [(tmp_path / n).stat().st_mode & 0o777 for n in "abcd"] == [0o640, 0o600, 0o640, 0o640]


def test_a_temp_that_is_swept_between_its_open_and_its_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweeper takes it for a dead writer's: the writer notices, and makes another."""
    real, swept = temp_module.try_flock, []

    def late(fd: int) -> bool:
        if not swept:
            swept.append(os.listdir(tmp_path))
            monkeypatch.setattr(temp_module, "try_flock", real)
            assert sweep(tmp_path) == (1, 0)
        return real(fd)

    monkeypatch.setattr(temp_module, "try_flock", late)
    publish_bytes(tmp_path / "a", b"1")
    assert len(swept[0]) == 1 and (tmp_path / "a").read_bytes() == b"1" and os.listdir(tmp_path) == ["a"]


def test_a_temp_that_a_sweeper_with_its_lock_removes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweeper has the lock when the writer asks for it, and removes the file before the writer gives it up."""
    locks, leads, asked = temp_module.try_flock, temp_module.leads_to, []

    def taken(fd: int) -> bool | None:
        monkeypatch.setattr(temp_module, "try_flock", locks)
        return False

    def removed(name: str, fd: int, dir_fd: int | None = None) -> bool:
        found = leads(name, fd, dir_fd)
        if found and not asked:
            asked.append(name)
            (tmp_path / name).unlink()
        return found

    monkeypatch.setattr(temp_module, "try_flock", taken)
    monkeypatch.setattr(temp_module, "leads_to", removed)
    publish_bytes(tmp_path / "a", b"1")
    assert asked and (tmp_path / "a").read_bytes() == b"1" and os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("again", [False, True], ids=["gone", "another's"])
def test_a_dead_temp_that_another_sweeps_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool) -> None:
    """What has its name by then is a living writer's, and stays."""
    name = ".dslc-0123456789abcdef.tmp"
    (tmp_path / name).write_bytes(b"dead")
    real, calls = sweep_module.try_flock, []

    def late(fd: int) -> bool:
        if not calls:
            calls.append(fd)
            (tmp_path / name).unlink()
            if again:
                (tmp_path / name).write_bytes(b"alive")
        return real(fd)

    monkeypatch.setattr(sweep_module, "try_flock", late)
    assert sweep(tmp_path) == (0, 1)
    assert calls and os.listdir(tmp_path) == ([name] if again else [])


@pytest.mark.parametrize(("blocks", "free", "fits"), [(0, 0, True), (1, 0, False), (1, 1 << 30, True)])
def test_a_file_system_that_counts_no_blocks_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocks: int, free: int, fits: bool
) -> None:
    class Found:
        f_blocks, f_frsize, f_bfree, f_bavail = blocks, 4096, free, free

    monkeypatch.setattr(module.os, "fstatvfs", lambda _: Found)
    if fits:
        publish_bytes(tmp_path / "a", b"1")
    else:
        with pytest.raises(ResourceError):
            publish_bytes(tmp_path / "a", b"1")
    assert (tmp_path / "a").exists() == fits


def test_a_living_temp_is_never_swept(tmp_path: Path) -> None:
    seen = []

    def write(sink: Any) -> None:
        sink.write(b"1")
        seen.append((sweep(tmp_path), len(temps(tmp_path))))

    publish_bytes(tmp_path / "a", write)
    assert seen == [((0, 1), 1)] and (tmp_path / "a").read_bytes() == b"1"


@pytest.mark.parametrize("name", ["..", ".dslc-lock", ".dslc-0123456789abcdef.tmp", "a/b", "a\0b"])
def test_names_that_are_none(name: str, tmp_path: Path) -> None:
    with pytest.raises(ResourceError):
        publish_files(tmp_path, {name: b"1", "z": b"2"}, "z")
    assert os.listdir(tmp_path) == []


def test_the_folder_is_missing_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for folder in ("missing", "file"):
        with pytest.raises(ResourceError) as caught:
            publish_bytes(tmp_path / folder / "a", b"1")
        assert caught.value.code == "R402" and "make the folder first" in str(caught.value.help)


def test_half_of_the_names_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = prepared(tmp_path / "out")
    (folder / "net.dslc").unlink()
    (folder / "net.dslc").mkdir()
    with pytest.raises(ResourceError) as caught:
        publish_files(folder, {"__init__.py": b"1", "net.dslc": b"2"}, "net.dslc")
    assert caught.value.code == "R402" and "__init__.py next to it are new" in caught.value.message
    assert not temps(folder)


def test_the_sweeper_spares_the_living(tmp_path: Path) -> None:
    dead, living = tmp_path / f".dslc-{'0' * 16}.tmp", tmp_path / f".dslc-{'1' * 16}.tmp"
    dead.write_bytes(b"")
    living.write_bytes(b"")
    (tmp_path / f".dslc-{'2' * 16}.tmp").symlink_to(tmp_path / "elsewhere")
    with living.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert sweep(tmp_path) == (1, 2)
    assert not dead.exists() and living.exists()
    assert sweep(tmp_path) == (1, 1)


def test_two_writers_leave_one_of_the_two(tmp_path: Path) -> None:
    folder = prepared(tmp_path / "out")
    tags = [["aaa"] * 20, ["bbb"] * 20]
    rivals = [subprocess.Popen([sys.executable, str(SCRIPT), "many", str(folder), *t]) for t in tags]
    reads = 0
    while any(r.poll() is None for r in rivals):
        seen = (folder / "net.dslc").read_bytes()
        assert seen in (content("old"), content("aaa"), content("bbb"))
        reads += 1
    assert [r.returncode for r in rivals] == [0, 0] and reads > 0
    assert len({(folder / name).read_bytes() for name in NAMES}) == 1
    assert sorted(os.listdir(folder)) == sorted([*NAMES, "net.safetensors"])


def test_a_second_build_fails_fast(tmp_path: Path) -> None:
    with folder_lock(tmp_path) as held:
        with pytest.raises(ResourceError) as caught:
            publish_files(tmp_path, {"a": b"1"}, "a", timeout=0.05)
        assert caught.value.code == "R404" and f"build by pid {os.getpid()} running" in caught.value.message
        publish_files(tmp_path, {"a": b"1"}, "a", lock=held)
    assert os.listdir(tmp_path) == ["a"]


def test_a_read_only_folder(tmp_path: Path) -> None:
    """As a user whom a folder's mode stops: root is not stopped by 0555, and so becomes nobody when all is imported."""
    folder = prepared(tmp_path / "out")
    script = (
        "import sys; from interruption import publishing as p; from pathlib import Path\n"
        "from dslc.base.errors import ResourceError\n"
        "import os\n"
        "if os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "for kind in ('one', 'many'):\n"
        "    try: p.publish(kind, Path(sys.argv[1]), 'new')\n"
        "    except ResourceError as e: print(e.code)\n"
    )
    command = [sys.executable, "-B", "-c", script, str(folder)]
    if os.geteuid() == 0:
        for parent in [folder, *folder.parents][:4]:
            parent.chmod(0o755)
    folder.chmod(0o555)
    done = subprocess.run(command, env=with_support(), capture_output=True, text=True, check=False)
    folder.chmod(0o755)
    assert done.stdout.split() == ["R402", "R402"], done.stderr
    assert whole(folder) and not temps(folder)

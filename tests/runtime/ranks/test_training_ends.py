"""`dslc train` as several processes: the same bits, also resumed on another number; faults end all with one message."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from ranks.project import CONFIG, SOURCE, ended, project, ranks, started
from safetensors.numpy import load_file

from dslc.base.errors import RanksError
from dslc.runtime.ranks.launch import launch

pytestmark = pytest.mark.slow


def outcome(folder: Path) -> tuple[list[Any], dict[str, bytes], dict[str, bytes]]:
    """The losses of the log, the weights, and the state of the last checkpoint."""
    lines = [json.loads(line) for line in (folder / "runs/net/log.jsonl").read_text().splitlines()]
    taken = [{n: v for n, v in line.items() if n not in ("time", "seconds", "samples_per_s")} for line in lines]
    last = max((folder / "runs/net/checkpoints").glob("*.safetensors"))
    files = (folder / "runs/net/weights.safetensors", last)
    weights, state = ({n: a.tobytes() for n, a in load_file(path).items()} for path in files)
    return taken, weights, state


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = project(tmp_path_factory.mktemp("alone"))
    assert ended(started(folder))[0] == 0
    return outcome(folder)


def checkpointed(folder: Path) -> None:
    """Wait for the first checkpoint."""
    deadline = time.monotonic() + 60
    while not list(folder.glob("runs/net/checkpoints/*.safetensors")) and time.monotonic() < deadline:
        time.sleep(0.05)


def test_processes_of_one_host(tmp_path: Path, expected: Any) -> None:
    folder = project(tmp_path)
    process = started(folder, "--processes", "4")
    said, _ = process.communicate(timeout=90)
    assert process.returncode == 0 and said.count("epoch 1/3") == 1  # one progress
    assert outcome(folder) == expected


@pytest.mark.parametrize(
    ("names", "more"),
    [
        (("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"), {}),
        (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), {}),
        (("PMI_RANK", "PMI_SIZE"), {}),
        (("RANK", "WORLD_SIZE"), {"TORCHELASTIC_USE_AGENT_STORE": "True"}),
    ],
    ids=["Slurm", "Open MPI", "MPICH", "torchrun"],
)
def test_other_launchers(tmp_path: Path, expected: Any, names: tuple[str, str], more: dict[str, str]) -> None:
    processes = ranks([project(tmp_path)] * 2, names=names, of_rank=dict.fromkeys(range(2), more))
    assert [ended(process)[0] for process in processes] == [0, 0]
    assert outcome(tmp_path) == expected


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_end_of_the_launcher_is_a_request_to_stop(tmp_path: Path, number: signal.Signals) -> None:
    """Rank 0 saves a checkpoint and ends the others; no process stays."""
    folder = project(tmp_path)
    (folder / "dslc.yaml").write_text(CONFIG.replace("epochs: 3", "epochs: 100000"))
    launcher = started(folder, "--processes", "2")
    checkpointed(folder)
    deadline = time.monotonic() + 60
    children = _children(launcher.pid)
    assert len(children) == 2
    launcher.send_signal(number)
    while any(Path(f"/proc/{pid}").exists() for pid in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)
    launcher.communicate(timeout=30)
    assert launcher.returncode == (143 if number == signal.SIGTERM else -signal.SIGKILL)
    newest = max(folder.glob("runs/net/checkpoints/*.safetensors"))
    assert int(newest.stem.removeprefix("step-")) > 0


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_killed_and_resumed_on_other_numbers(tmp_path: Path, expected: Any) -> None:
    """Killed at the 7th and 6th step of their parts, by rank 0 and by a follower; each goes on from a checkpoint."""
    folder = project(tmp_path)
    killed = ranks([folder] * 4, of_rank={0: {"DSLC_FAILPOINT": "train.step:7:kill"}})
    found = [ended(process) for process in killed]
    assert found[0][0] == -signal.SIGKILL and [code for code, _ in found[1:]] == [75] * 3
    assert all("rank 0 of 4 has ended" in said for _, said in found[1:])
    killed = ranks([folder] * 2, "--resume", of_rank={1: {"DSLC_FAILPOINT": "ranks.step:6:kill"}})
    found = [ended(process) for process in killed]
    assert [code for code, _ in found] == [75, -signal.SIGKILL] and "rank 1 of 2 has ended" in found[0][1]
    process = started(folder, "--resume", "--processes", "8")
    assert ended(process, 120)[0] == 0
    assert outcome(folder) == expected


def resumed(folder: Path) -> list[str]:
    """The option to go on; not if the run was killed before its first checkpoint."""
    return ["--resume"] if list(folder.glob("runs/net/checkpoints/*.safetensors")) else []


def test_killed_at_random_points(tmp_path: Path, expected: Any, fuzz_seed: int) -> None:
    """Any rank of any number is killed at any of its next steps, four times; the run goes on with another number."""
    rng, folder = Random(fuzz_seed), project(tmp_path)
    for _ in range(4):
        size, step = rng.choice((2, 4, 8)), rng.randint(1, 7)
        victim = rng.randrange(size)
        fault = {victim: {"DSLC_FAILPOINT": f"{'ranks' if victim else 'train'}.step:{step}:kill"}}
        codes = [ended(process, 120)[0] for process in ranks([folder] * size, *resumed(folder), of_rank=fault)]
        assert codes in ([0] * size, [-signal.SIGKILL if rank == victim else 75 for rank in range(size)])
    number = rng.choice(([], ["--processes", "2"], ["--processes", "8"]))
    assert ended(started(folder, *resumed(folder), *number), 120)[0] == 0
    assert outcome(folder) == expected


def test_rank_0_decides_whether_a_run_starts_again(tmp_path: Path, expected: Any) -> None:
    """Killed before the first checkpoint; the folder of the run is on the disk of rank 0 alone."""
    one, other = project(tmp_path / "one"), project(tmp_path / "other")
    killed = ranks([one, other], of_rank={0: {"DSLC_FAILPOINT": "train.step:2:kill"}})
    assert [ended(process)[0] for process in killed] == [-signal.SIGKILL, 75]
    assert (one / "runs/net").exists() and not (other / "runs").exists()
    assert [ended(process) for process in ranks([one, other], "--resume")] == [(0, "")] * 2
    assert outcome(one) == expected


def test_micro_batches_killed_and_resumed_on_other_numbers(tmp_path: Path) -> None:
    """Four steps an epoch, of two micro-batches of eight shards; killed at the 5th step and at the 3rd after it."""
    source = SOURCE.replace("adam(lr=0.01)", "adam(lr=0.01)\n  accumulate = 2")
    folders = [project(tmp_path / name) for name in ("alone", "killed")]
    for folder in folders:
        (folder / "net.nn").write_text(source)
        (folder / "dslc.yaml").write_text(CONFIG.replace("every: 4 steps", "every: 2 steps"))
    assert ended(started(folders[0]))[0] == 0
    killed = ranks([folders[1]] * 4, of_rank={0: {"DSLC_FAILPOINT": "train.step:5:kill"}})
    assert [ended(process)[0] for process in killed] == [-signal.SIGKILL, 75, 75, 75]
    killed = ranks([folders[1]] * 2, "--resume", of_rank={1: {"DSLC_FAILPOINT": "ranks.step:3:kill"}})
    assert [ended(process)[0] for process in killed] == [75, -signal.SIGKILL]
    assert ended(started(folders[1], "--resume", "--processes", "8"), 120)[0] == 0
    assert outcome(folders[1]) == outcome(folders[0])


def test_a_stopped_rank_ends_all(tmp_path: Path) -> None:
    processes = ranks([project(tmp_path)] * 4, of_rank={1: {"DSLC_FAILPOINT": "ranks.step:5:hang"}}, seconds=6)
    # at its fifth step, so that it is stopped there; by itself it would still tell that it lives
    deadline = time.monotonic() + 60
    while not (tmp_path / "runs/net/checkpoints").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    processes[1].send_signal(signal.SIGSTOP)
    begun = time.monotonic()
    found = {rank: ended(processes[rank], 30) for rank in (0, 2, 3)}
    assert time.monotonic() - begun < 25
    processes[1].kill()
    processes[1].communicate()
    for code, said in found.values():
        assert code == 75 and "rank 1 of 4 has ended: it was silent for 6 s" in said


@pytest.mark.parametrize("victim", [0, 2])
def test_a_stopped_rank_ends_the_launcher(tmp_path: Path, victim: int) -> None:
    """In the limit of silence and a few seconds; the stopped process does not stay."""
    folder = project(tmp_path)
    (folder / "dslc.yaml").write_text(CONFIG.replace("epochs: 3", "epochs: 100000"))
    launcher = started(folder, "--processes", "4", environment={"DSLC_RANKS_SECONDS": "6"})
    checkpointed(folder)
    children = _children(launcher.pid)
    os.kill(children[victim], signal.SIGSTOP)
    begun = time.monotonic()
    code, said = ended(launcher)
    assert time.monotonic() - begun < 6 + 5
    assert code == 75 and said.count("error[R603]") == 1
    assert f"rank {victim} of 4 has ended: {'it was silent for 6 s' if victim else 'it was stopped'}" in said
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)


def test_a_launcher_that_is_killed_before_the_ranks_join(tmp_path: Path) -> None:
    """None of them waits for the others."""
    launcher = started(project(tmp_path), "--processes", "4")
    while len(children := _children(launcher.pid)) < 4:
        time.sleep(0.01)
    launcher.kill()
    launcher.communicate(timeout=60)  # its pipe is open as long as rank 0 lives
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)


def test_a_rank_that_is_killed_before_it_joins(tmp_path: Path) -> None:
    """The launcher names it, and not rank 0, which waits for it."""
    launcher = started(project(tmp_path), "--processes", "4")
    while len(children := _children(launcher.pid)) < 4:
        time.sleep(0.01)
    os.kill(children[2], signal.SIGKILL)
    code, said = ended(launcher)
    assert code == 75 and said.count("error[R603]") == 1
    assert "rank 2 of 4 has ended: it was killed by SIGKILL" in said


@pytest.mark.timeout(60)
@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_is_stopped_at_the_end(victim: int) -> None:
    """The others have ended well."""
    stop = f"import os, signal; os.environ['RANK'] == '{victim}' and os.kill(os.getpid(), signal.SIGSTOP)"
    with pytest.raises(RanksError) as caught:
        launch([sys.executable, "-c", stop], 2, os.environ)
    assert caught.value.message == f"rank {victim} of 2 has ended: it was stopped"


def test_a_rank_that_does_not_ask_is_ended(tmp_path: Path) -> None:
    """Rank 1 is killed while rank 2 does something long: it has 10 s to finish, not a second limit of silence."""
    faults = {1: {"DSLC_FAILPOINT": "ranks.step:5:kill"}, 2: {"DSLC_FAILPOINT": "ranks.step:5:hang"}}
    processes = ranks([project(tmp_path)] * 4, of_rank=faults, seconds=40)
    assert ended(processes[1])[0] == -signal.SIGKILL
    begun = time.monotonic()
    for rank in (0, 3, 2):
        code, said = ended(processes[rank], 30)
        assert code == 75 and "rank 1 of 4 has ended" in said
        assert time.monotonic() - begun < (10 + 5 if rank == 2 else 5)


def test_suspended_ranks_go_on(tmp_path: Path, expected: Any) -> None:
    """All processes of a job are stopped for longer than the limit of silence, as by Slurm's `scontrol suspend`."""
    folder = project(tmp_path)
    processes = ranks([folder] * 2, seconds=2)
    checkpointed(folder)
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for process in processes:
            process.send_signal(number)
        time.sleep(5)
    assert [ended(process)[0] for process in processes] == [0, 0]
    assert outcome(folder) == expected


def test_a_rank_that_was_stopped_says_so(tmp_path: Path) -> None:
    """Rank 0 goes on after the others have given it up."""
    folder = project(tmp_path)
    processes = ranks([folder] * 2, seconds=2)
    checkpointed(folder)
    processes[0].send_signal(signal.SIGSTOP)
    code, said = ended(processes[1])
    assert code == 75 and "rank 0 of 2 has ended: it was silent for 2 s" in said
    processes[0].send_signal(signal.SIGCONT)
    code, said = ended(processes[0])
    assert code == 75 and said.count("error[R603]: rank 0 of 2 has ended: it was stopped for") == 1


def test_the_launcher_tells_of_a_killed_rank(tmp_path: Path) -> None:
    """Once, by the words of rank 0, and by which signal."""
    folder = project(tmp_path)
    process = started(folder, "--processes", "2", environment={"DSLC_FAILPOINT": "ranks.step:4:kill"})
    code, said = ended(process)
    assert code == 75 and said.count("error[R603]") == 1 and "rank 1 of 2 has ended" in said
    assert said.endswith("rank 1 was killed by SIGKILL, as by the kernel when memory runs out\n")


def test_another_artifact_on_one_rank(tmp_path: Path) -> None:
    one, other = project(tmp_path / "one"), project(tmp_path / "other")
    (other / "net.nn").write_text((other / "net.nn").read_text().replace("linear(8)", "linear(9)"))
    for code, said in map(ended, ranks([one, other])):
        assert code == 4 and "error[R602]: the artifact of rank 1 is sha256:" in said


def test_other_data_on_one_rank(tmp_path: Path) -> None:
    one, other = project(tmp_path / "one"), project(tmp_path / "other")
    (other / "dslc.yaml").write_text(CONFIG.replace("seed: 0", "seed: 1"))
    for code, said in map(ended, ranks([one, other])):
        assert code == 4 and "error[R602]: `train.seed` of rank 1 is 1, that of rank 0 is 0" in said


@pytest.mark.parametrize("field", ["x", "label"])
def test_another_content_of_the_data_on_one_rank(tmp_path: Path, field: str) -> None:
    """One number of one row: the parts of a step would not belong together."""
    one, other = project(tmp_path / "one"), project(tmp_path / "other")
    for folder in (one, other):
        arrays = dict(np.load(folder / "data.npz"))
        np.savez(folder / "data.npz", **{field: arrays.pop(field)})
        np.savez(folder / "rest.npz", **arrays)
        text = CONFIG
        for name in arrays:
            text = text.replace(f"data.npz:{name}", f"rest.npz:{name}")
        (folder / "dslc.yaml").write_text(text)
    changed = np.load(other / "data.npz")[field]
    changed[5] = (changed[5] + 1) % 3
    np.savez(other / "data.npz", **{field: changed})
    for code, said in map(ended, ranks([one, other])):
        assert code == 4 and f"error[R602]: the content of `data.train.{field}` of rank 1 is " in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_launcher_is_stopped_before_the_ranks_have_begun(tmp_path: Path, number: signal.Signals) -> None:
    """By Ctrl-C, which a terminal sends to the process and to rank 0, or by a batch system."""
    launcher = started(project(tmp_path), "--processes", "4")
    while len(children := _children(launcher.pid)) < 4:
        time.sleep(0.01)
    for pid in (launcher.pid, *([children[0]] if number == signal.SIGINT else [])):
        os.kill(pid, number)
    code, said = ended(launcher)
    assert code == 128 + number and "error[" not in said
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)


def test_ctrl_c_while_the_interpreter_of_rank_0_starts() -> None:
    """Python then ends with exit code 1, whatever it was to run."""
    rank = (
        "import os, signal, time\n"
        "if os.environ['RANK'] == '0':\n"
        "    os.kill(os.getppid(), signal.SIGINT)\n"
        "    time.sleep(0.2)\n"
        "    raise SystemExit(1)\n"
        "time.sleep(60)\n"
    )
    launcher = (
        "import os, sys\nfrom dslc.runtime.ranks.launch import launch\n"
        f"sys.exit(launch([sys.executable, '-c', {rank!r}], 2, os.environ))\n"
    )
    done = subprocess.run([sys.executable, "-c", launcher], timeout=60)
    assert done.returncode == 128 + signal.SIGINT


def test_a_full_disk_on_rank_0(tmp_path: Path) -> None:
    """Three checkpoints in a row cannot be written: rank 0 says so and ends, and the others with it."""
    fault = {"DSLC_FAILPOINT": ",".join(f"publish.write:{n}:enospc" for n in range(1, 200))}
    one, other = map(ended, ranks([project(tmp_path)] * 2, of_rank={0: fault}))
    assert one[0] == 6 and "error[R402]" in one[1]
    assert other[0] == 75 and "rank 0 of 2 has ended: R402" in other[1]


def test_a_full_disk_on_another_rank(tmp_path: Path, expected: Any) -> None:
    """A rank with a disk of its own writes the artifact there. All end with its message, which names the file; the same
    command trains once there is space."""
    full = {"DSLC_FAILPOINT": ",".join(f"publish.write:{n}:enospc" for n in range(1, 200))}
    one, other = project(tmp_path / "one"), project(tmp_path / "other")
    found = [ended(each) for each in ranks([one, one, other, one], of_rank={2: full})]
    assert [code for code, _ in found] == [75, 75, 6, 75] and "error[R402]" in found[2][1]
    for _, said in (*found[:2], found[3]):
        assert said.count("error[") == 1 and "rank 2 of 4 has ended: R402" in said
        assert "(build/net/net.dslc)" in said and "free some space" in said
    assert [ended(each)[0] for each in ranks([one, one, other, one])] == [0] * 4
    assert outcome(one) == expected


def test_a_rank_that_is_killed_in_an_evaluation(tmp_path: Path) -> None:
    folder = project(tmp_path)
    process = started(folder, "--processes", "2", environment={"DSLC_FAILPOINT": "ranks.evaluate:2:kill"})
    code, said = ended(process)
    assert code == 75 and said.count("error[R603]") == 1 and "rank 1 of 2 has ended" in said


def test_a_rank_that_is_killed_when_a_checkpoint_is_gathered(tmp_path: Path, expected: Any) -> None:
    """Its slots are lost; the run goes on from the checkpoint before, with one process."""
    folder = project(tmp_path)
    found = [ended(p) for p in ranks([folder] * 2, of_rank={1: {"DSLC_FAILPOINT": "ranks.gather:4:kill"}})]
    assert [code for code, _ in found] == [75, -signal.SIGKILL] and "rank 1 of 2 has ended" in found[0][1]
    assert ended(started(folder, "--resume"))[0] == 0
    assert outcome(folder) == expected


def test_three_processes_cannot_share_eight_shards(tmp_path: Path) -> None:
    code, said = ended(started(project(tmp_path), "--processes", "3"))
    assert code == 4 and said.count("error[R601]: 3 processes cannot share 8 shards") == 1


def test_gpus_that_are_not_there(tmp_path: Path) -> None:
    """No GPU is visible: one message, before the build."""
    folder = project(tmp_path)
    code, said = ended(started(folder, "--gpus", "2", environment={"CUDA_VISIBLE_DEVICES": ""}))
    assert code == 4 and said.count("error[R201]") == 1, said
    assert not (folder / "build").exists()

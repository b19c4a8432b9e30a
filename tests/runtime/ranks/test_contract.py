"""Environment variables of launchers become the place of a process, or an error that names the variable."""

from __future__ import annotations

from typing import Any

import pytest

from dslc.base.errors import DslcWarning, RanksError
from dslc.cli.ranks import place
from dslc.runtime.ranks.contract import PORT, SECRET, Place, first_node, lost_variables, place_of

KEY = {SECRET: "0123456789abcdef"}
TORCHRUN = {"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "gpu1",
            "MASTER_PORT": "2000"}  # fmt: skip
SLURM = {"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "0", "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
         "SLURM_STEP_NODELIST": "gpu[003-007,9],cpu1"}  # fmt: skip
MPI = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "2",
       "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}  # fmt: skip
HYDRA = {"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "2", "MPI_LOCALNRANKS": "4"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (TORCHRUN, (2, 4, 0, 2, "gpu1", 2000)),
        ({**TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE": "True"}, (2, 4, 0, 2, "gpu1", 2001)),
        (SLURM, (2, 4, 0, 2, "gpu003", PORT)),
        ({**SLURM, "MASTER_ADDR": "head", "MASTER_PORT": "77"}, (2, 4, 0, 2, "head", 77)),
        (MPI, (2, 4, 2, 4, "127.0.0.1", PORT)),
        (HYDRA, (2, 4, 2, 4, "127.0.0.1", PORT)),
    ],
)
def test_each_launcher(environment: dict[str, str], expected: tuple[Any, ...]) -> None:
    assert place_of({**environment, **KEY}) == Place(*expected, KEY[SECRET].encode())


@pytest.mark.parametrize(
    "environment",
    [{}, {"WORLD_SIZE": "1", "RANK": "0"}, {"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, {"MASTER_ADDR": "gpu1"}],
)
def test_a_process_that_is_alone(environment: dict[str, str]) -> None:
    """Also in an allocation of Slurm without `srun`."""
    assert place_of(environment) is None


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({"RANK": "4"}, "RANK"),
        ({"RANK": "-1"}, "RANK"),
        ({"RANK": None}, "RANK"),
        ({"WORLD_SIZE": None}, "WORLD_SIZE"),
        ({"WORLD_SIZE": "four"}, "WORLD_SIZE"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE"),
        ({"MASTER_ADDR": None}, "MASTER_ADDR"),
        ({"MASTER_PORT": "70000"}, "MASTER_PORT"),
        ({SECRET: "short"}, SECRET),
        ({SECRET: None}, SECRET),
        ({"DSLC_RANKS_SECONDS": "soon"}, "DSLC_RANKS_SECONDS"),
    ],
)
def test_a_variable_that_does_not_fit(changed: dict[str, str | None], wrong: str) -> None:
    environment = {n: v for n, v in {**TORCHRUN, **KEY, **changed}.items() if v is not None}
    with pytest.raises(RanksError) as caught:
        place_of(environment)
    assert (caught.value.code, caught.value.place, caught.value.exit_code) == ("R601", wrong, 4) and caught.value.help


@pytest.mark.parametrize(
    ("environment", "missing"),
    [
        ({"RANK": "0"}, "WORLD_SIZE"),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "4"}, "SLURM_STEP_NUM_TASKS"),
        ({"OMPI_COMM_WORLD_RANK": "0"}, "OMPI_COMM_WORLD_SIZE"),
        ({"PMI_RANK": "2"}, "PMI_SIZE"),
    ],
)
def test_a_rank_without_the_number_of_ranks(environment: dict[str, str], missing: str) -> None:
    """Else each of several processes would train alone."""
    with pytest.raises(RanksError) as caught:
        place_of({**environment, **KEY})
    assert (caught.value.code, caught.value.place) == ("R601", missing) and "unset" in str(caught.value.help)
    assert place_of({**environment, "WORLD_SIZE": "1"}) is None  # alone, on purpose


@pytest.mark.parametrize(
    ("environment", "lost"),
    [
        ({}, ()),
        ({"MASTER_ADDR": "gpu1", "MASTER_PORT": "2000", "RANK": "0"}, ("MASTER_ADDR", "MASTER_PORT")),
        ({"LOCAL_RANK": "1"}, ("LOCAL_RANK",)),
        ({"MASTER_ADDR": "gpu1", "WORLD_SIZE": "1"}, ()),
        ({**SLURM, "MASTER_ADDR": "head"}, ()),
    ],
)
def test_variables_of_several_processes_in_one_that_is_alone(
    environment: dict[str, str], lost: tuple[str, ...]
) -> None:
    assert lost_variables(environment) == lost


def test_a_process_that_trains_alone_says_so(monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MASTER_ADDR", "gpu1")
    with pytest.warns(DslcWarning, match=r"\[W012\] MASTER_ADDR is set, but not RANK and WORLD_SIZE"):
        assert place(None, None) is None
    assert place(4, None) is None and not recwarn.list  # `--processes` sets all variables itself


@pytest.mark.parametrize(
    ("nodes", "first"), [("a", "a"), ("a1,b2", "a1"), ("n[01-03]", "n01"), ("n-[5]", "n-5"), ("x.y[7,9]", "x.y7")]
)
def test_the_first_node_of_a_list(nodes: str, first: str) -> None:
    assert first_node(nodes) == first

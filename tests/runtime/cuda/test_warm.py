"""What ``dslc warm`` keeps of the libraries' choices: used by later loads, never in another place, never a failure."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_gpu.fake_driver import FakeDriver
from fake_gpu.fake_libraries import FakeCublasLt, FakeCudnn
from fake_gpu.gpu_model import write_gpu_line
from fake_gpu.library_model import batch, opened, small

from dslc.base.errors import DslcWarning, ResourceError
from dslc.cli.app import run
from dslc.runtime.cuda import device as devices

Fakes = tuple[FakeCublasLt, FakeCudnn]


class Place:
    """An artifact with library calls, a fake GPU, fake libraries, and a cache of its own."""

    def __init__(self, folder: Path, machine: Any, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cache = folder / "cache"
        monkeypatch.setenv("DSLC_CACHE_DIR", str(self.cache))
        self.path, kernels = small(folder, monkeypatch)
        self.fake: FakeDriver = machine(**kernels.driver())
        self.make: Callable[[FakeDriver], Fakes] = make
        for entry in self.entries():  # of the build that made the artifact
            entry.unlink()

    def entries(self) -> list[Path]:
        return sorted(p for p in self.cache.iterdir() if p.name.startswith(("cublaslt-", "cudnn-")))

    def load(self, keep: bool = False, change: Callable[[Fakes], object] = lambda fakes: None) -> tuple[Any, int, int]:
        """With libraries that know nothing yet: losses, and how many choices cuBLASLt and cuDNN made."""
        fakes = self.make(self.fake)
        change(fakes)
        with opened(self.path, device="gpu") as session:
            losses = [session.train_step(**batch(i)).loss for i in range(3)]
            if keep:
                assert session.keep_choices() > 0
        lt, dnn = fakes
        assert not lt.objects and not dnn.objects
        return losses, lt.calls["cublasLtMatmulAlgoGetHeuristic"], dnn.calls["heuristics"]


@pytest.fixture
def place(tmp_path: Path, machine: Any, libraries: Any, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, machine, libraries, monkeypatch)


def test_a_later_load_takes_what_was_kept(place: Place) -> None:
    losses, products, convolutions = place.load(keep=True)
    assert products > 0 and convolutions > 0 and len(place.entries()) == 2
    assert place.load() == (losses, 0, 0)  # the same bits, and nothing was asked
    assert place.load(keep=True) == (losses, 0, 0) and len(place.entries()) == 2
    devices.device(0).close()
    assert place.fake.leaks() == {}


def test_what_took_time_is_told_as_it_was(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dslc.runtime.cuda.libraries.libraries._WORTH_TELLING", 0.0)
    with pytest.warns(DslcWarning, match=r"s to load and to choose \d+ algorithms; `dslc warm` stores them"):
        place.load(keep=True)
    with pytest.warns(DslcWarning, match=r"cuBLASLt and cuDNN took \d+\.\d s to load$"):
        place.load()


def test_a_load_keeps_nothing_by_itself(place: Place) -> None:
    _, products, convolutions = place.load()
    assert place.entries() == [] and place.load()[1:] == (products, convolutions)


@pytest.mark.parametrize("what", ["cublaslt", "cudnn", "gpu", "driver", "size"])
def test_it_holds_for_these_versions_and_this_gpu_alone(
    place: Place, machine: Any, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    _, products, convolutions = place.load(keep=True)

    def change(fakes: Fakes) -> None:
        lt, dnn = fakes
        if what == "cublaslt":
            lt.version += 1
        elif what == "cudnn":
            dnn.backend_version = lambda: 91901  # type: ignore[method-assign]

    def attribute(driver: FakeDriver, wanted: Any, device: Any) -> int:
        return 131 if wanted.name.endswith("COUNT") else 9 * wanted.name.endswith("MAJOR")

    asked: dict[str, tuple[str, Callable[..., Any]]] = {
        "gpu": ("do_cuDeviceGetName", lambda *_: b"Other GPU\0"),
        "driver": ("do_cuDriverGetVersion", lambda _: 13010),
        "size": ("do_cuDeviceGetAttribute", attribute),
    }
    if what in asked:
        name, answer = asked[what]
        monkeypatch.setattr(FakeDriver, name, answer)
        monkeypatch.setattr(devices, "_machine", devices._Machine())
    expected = {"cublaslt": (products, 0), "cudnn": (0, convolutions)}
    assert place.load(change=change)[1:] == expected.get(what, (products, convolutions))


def test_a_choice_that_the_library_no_longer_takes_is_made_again_with_one_warning(place: Place) -> None:
    losses, products, convolutions = place.load(keep=True)

    def other_plans(fakes: Fakes) -> None:
        fakes[1].plans, fakes[1].proposes["A"] = [("eng9", 0, set())], ("eng9",)
        fakes[0].refuses = {"cublasLtMatmulAlgoInit"}

    with pytest.warns(DslcWarning, match="is ignored, and chosen again") as told:
        assert place.load(change=other_plans, keep=True) == (losses, products, convolutions)
    assert [w.message.code for w in told] == ["W002"]  # type: ignore[union-attr]

    def known_again(fakes: Fakes) -> None:
        fakes[1].plans = [("eng9", 0, set())]

    assert place.load(change=known_again) == (losses, 0, 0)  # what was chosen instead is kept


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "link"])
def test_a_damaged_entry_costs_time_and_one_warning(place: Place, damage: str) -> None:
    losses, _, convolutions = place.load(keep=True)
    [lt, dnn] = place.entries()
    data = bytearray(dnn.read_bytes())
    data[len(data) // 2] ^= 1
    dnn.write_bytes({"flip": bytes(data), "cut": bytes(data[:50]), "empty": b"", "link": b""}[damage])
    if damage == "link":
        dnn.unlink()
        dnn.symlink_to(lt)
    with pytest.warns(DslcWarning, match="W002") as told:
        assert place.load() == (losses, 0, convolutions)
    assert len(told) == 1
    if damage != "link":
        assert place.load()[2] == convolutions and len(place.entries()) == 1


def test_without_a_cache(place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _, products, convolutions = place.load(keep=True)
    for folder in ("off", str(tmp_path / "none")):
        monkeypatch.setenv("DSLC_CACHE_DIR", folder)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert place.load()[1:] == (products, convolutions)
    assert not (tmp_path / "none").exists()
    monkeypatch.setenv("DSLC_CACHE_DIR", "off")
    place.make(place.fake)
    with opened(place.path, device="gpu") as session, pytest.raises(ResourceError) as caught:
        session.keep_choices()
    assert caught.value.code == "R402" and "DSLC_CACHE_DIR" in str(caught.value.help)


def test_the_command(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    place.make(place.fake)
    assert run(["warm", str(place.path), "--json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert data["device"] == "gpu:0" and data["kept"] > 2 and data["load_seconds_again"] > 0
    lt, dnn = place.make(place.fake)
    assert run(["warm", str(place.path)]) == 0
    assert (
        "kept" in capfd.readouterr().out
        and not dnn.calls["heuristics"]
        and not lt.calls["cublasLtMatmulAlgoGetHeuristic"]
    )
    assert run(["warm", str(place.path), "--device", "tpu"]) == 3


def test_an_artifact_of_own_kernels_has_nothing_to_choose(
    tmp_path: Path, machine: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    path, kernels = write_gpu_line(tmp_path)
    machine(**kernels.driver())
    assert run(["warm", str(path)]) == 0
    assert "nothing to choose" in capfd.readouterr().out

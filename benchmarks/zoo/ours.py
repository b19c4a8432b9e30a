"""Our side of a comparison: builds a model's artifact, or runs it in a process of its own.

    python ours.py build NAME FOLDER [--device gpu] [--dtype bf16] [--providers vendor] [--artifacts FOLDER]
    python ours.py run   NAME FOLDER [--device gpu] [--dtype bf16] [--only-time]
    python ours.py build NAME FOLDER --entry predict --batch 1 ...

``build`` writes FOLDER/net.dslc. ``run`` answers the commands ``open``, ``time SECONDS`` and ``memory`` (``steps.py``).
On a GPU inputs and labels are arrays in its memory, and a step is one launch of a CUDA graph.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from entries import BY_NAME, OPTIMIZERS, ROOT, Entry, chosen
from steps import answer, forget_peak, norm_errors, output_error, resident, serve, timed

if TYPE_CHECKING:
    from dslc import Session

ARCHITECTURE: Final = "sm_90"
_MIB: Final = 1 << 20


def source(entry: Entry, trains: bool = True) -> str:
    """The model's file without its train section, precision and budget, but if it ``trains`` with the entry's own train
    section."""
    file, _, model = entry.file.partition(":")
    text = (ROOT / f"{file}.nn").read_text(encoding="utf-8")
    text = re.sub(r"^train .*?^}\n", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^(precision|budget) .*\n", "", text, flags=re.MULTILINE)
    if not trains:
        return text
    kinds = {"i32": "i32", "f32": ""}
    labels = ", ".join(
        f"{n}: {kinds[kind]}[{', '.join(map(str, shape))}]" for n, (shape, kind, _) in entry.labels.items()
    )
    optimizer = f"  optimizer = {OPTIMIZERS[entry.optimizer]}\n"
    body = f"  loss = {entry.loss}\n{optimizer}"
    if entry.steps:
        steps = [(name, f'  params = "{layer}"\n  loss = {loss}\n') for name, (layer, loss) in entry.steps.items()]
        body = "".join(f"step {name} {{\n{inner}{optimizer}}}\n" for name, inner in steps)
    return f"{text}\ntrain {model}({labels}) {{\n{body}}}\n"


def options(entry: Entry, asked: argparse.Namespace) -> Any:
    """The options of the build, for the entry's sizes, with what `dslc build` obeys: a lock of ``--locks`` and the
    shipped table."""
    from dslc.cli.locks.find import with_lock
    from dslc.compiler.options import Options

    sizes = {dim: (size,) for dim, size in entry.dims().items()}
    found = Options(
        target=ARCHITECTURE if asked.device == "gpu" else "cpu",
        provider=asked.providers,
        precision=None if asked.dtype == "f32" else asked.dtype,
        sizes={"predict": sizes, **({"train": sizes} if asked.entry != "predict" else {})},
    )
    return with_lock(found, ROOT, lock_of(entry, asked))


def lock_of(entry: Entry, asked: argparse.Namespace) -> Path | None:
    """The lock that `dslc tune` wrote for the entry: the file of its name in ``--locks``, if there is one."""
    path = None if asked.locks is None else asked.locks / f"{in_file_names(entry.name)}.lock"
    return path if path is not None and path.exists() else None


def in_file_names(name: str) -> str:
    """A model's name as a part of a file's."""
    return re.sub(r"\W+", "-", name)


def build(entry: Entry, folder: Path, asked: argparse.Namespace) -> float:
    """Writes the artifact; the seconds of the build, 0 if ``--artifacts`` has it from the same sources."""
    from dslc.compiler.check.model import check_file
    from dslc.compiler.pipeline import build
    from dslc.compiler.toolchain.source_digest import digest_of

    started = time.perf_counter()
    text = source(entry, trains=asked.entry != "predict")
    made = options(entry, asked)
    (folder / "net.nn").write_text(text, encoding="utf-8")
    kept = None
    if asked.artifacts is not None:
        compiler = digest_of(ROOT / name for name in ("dsl", "compiler", "runtime"))
        obeyed = lock_of(entry, asked)
        lock = None if obeyed is None else obeyed.read_bytes()
        key = repr((text, entry.arguments(), entry.dims(), asked.device, asked.dtype, asked.providers, lock, compiler))
        kept = asked.artifacts / f"{in_file_names(entry.name)}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.dslc"
        if kept.exists():
            shutil.copyfile(kept, folder / "net.dslc")
            return 0.0
    checked = check_file(folder / "net.nn", entry.file.partition(":")[2], entry.arguments())
    artifact = build(checked, made).artifact
    if kept is not None:
        asked.artifacts.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(artifact)
    (folder / "net.dslc").write_bytes(artifact)
    return time.perf_counter() - started


class Ours:
    """A session, and the answers to commands."""

    calls: tuple[str, ...] | None = None  # that the session makes; None: all

    def __init__(self, entry: Entry, folder: Path, device: str, only_time: bool) -> None:
        self.entry, self.folder, self.device, self.only_time = entry, folder, device, only_time
        self.before, self.taken, self.gpu = resident(), 0, device == "gpu"
        self.inputs, self.labels = entry.drawn()
        self.free()  # opens the context, which is not counted

    def free(self) -> int:
        """Bytes of the GPU that no process has; 0 on a CPU."""
        import dslc

        return dslc.memory_info("gpu").free if self.gpu else 0

    def open(self) -> dict[str, Any]:
        """Loads, compares with what the twin wrote, and makes the first step of training, or the first prediction.

        Other processes of the comparison wait meanwhile, so what the driver has less afterwards is taken here.
        """
        import dslc

        free, began = self.free(), time.perf_counter()
        self.session = dslc.load(self.folder / "net.dslc", device=self.device, weights="init", calls=self.calls)
        found: dict[str, Any] = {"loaded s": round(time.perf_counter() - began, 2)} | self.ready()
        if not self.only_time:
            found |= self.agreement()
        forget_peak()
        began = time.perf_counter()
        self.run(1)
        found["step s"] = round(time.perf_counter() - began, 2)
        self.taken = free - self.free()
        return found

    def ready(self) -> dict[str, Any]:
        """Makes what steps are given; returns what is to be told of the session."""
        self.given = self.in_place() if self.gpu else self.inputs | self.labels
        return {}

    def agreement(self) -> dict[str, Any]:
        """The errors of a prediction and of gradients."""
        return agreement(self.entry, self.session, self.folder, self.inputs, self.labels)

    def in_place(self) -> dict[str, Any]:
        """The inputs and labels in the GPU's memory."""
        from dslc.runtime.cuda.arrays.arrays import new_array
        from dslc.runtime.cuda.device import device

        found: dict[str, Any] = {}
        for name, x in (self.inputs | self.labels).items():
            with device() as gpu:
                array = new_array(gpu, {"uint8": "u8", "float32": "f32", "int32": "i32"}[str(x.dtype)], x.shape)
                gpu.driver.copy_in(array.address, x.ctypes.data, x.nbytes, gpu.inbox)
                gpu.driver.synchronise(gpu.inbox)
            found[name] = array
        return found

    def run(self, count: int) -> float:
        result = None
        for _ in range(count):
            result = self.session.train_step(**self.given, lr=1e-6)
        assert result is not None
        return float(result.loss)

    def time(self, seconds: str) -> list[tuple[float, float]]:
        return timed(self.run, float(seconds), self.gpu)

    def commands(self) -> dict[str, Callable[..., object]]:
        return {"open": self.open, "time": self.time, "memory": self.memory}

    def memory(self) -> dict[str, float]:
        """MiB. On a GPU those of the plan, and what the driver had less after ``open``, without the context."""
        if not self.gpu:
            return {"MiB": round(resident(peak=True) - self.before)}
        import dslc

        return {"MiB": round(dslc.memory_info("gpu").peak / _MIB), "driver MiB": round(self.taken / _MIB)}


#: Of an optimizer: which tensor has the gradient after the first step, and by what it must be multiplied.
_GRADIENT: Final[dict[str, tuple[str, float]]] = {
    "sgd": (".momentum_buffer", 1.0), "adamw": (".exp_avg", 10.0), "adam": (".exp_avg", 2.0)
}  # fmt: skip


def agreement(
    entry: Entry, session: Session, folder: Path, inputs: dict[str, Any], labels: dict[str, Any]
) -> dict[str, Any]:
    """The errors of a prediction and of the gradients of one step, which the optimizer's first step stores; the
    session's state is as before."""
    ending, factor = _GRADIENT[entry.optimizer]
    fresh = {n: x.copy() for n, x in session.state_tensors().items()}
    session.weights.load(folder / "gradients.safetensors", map=entry.map)
    wanted = {n: x.copy() for n, x in session.state_tensors().items()}
    session.restore(fresh, 0)
    session.weights.load(folder / "weights.safetensors", map=entry.map)
    state = {n: x.copy() for n, x in session.state_tensors().items()}
    found = session.predict(**inputs)
    found = getattr(found, entry.result) if entry.result else found
    loss = float(session.train_step(**inputs, **labels, lr=1e-6).loss)
    after = session.state_tensors()
    given = {n.removesuffix(ending): x * factor for n, x in after.items() if n.endswith(ending)}
    errors = norm_errors(given, wanted)
    worst = max(errors, key=errors.__getitem__)
    session.restore(state, 0)
    output = output_error(found, np.load(folder / "prediction.npy"))
    return {"output": output, "gradient": errors[worst], "worst": worst, "loss": loss}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Those that both processes of ours and ``compare.py`` have."""
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--sizes", choices=("cpu", "gpu"), help="those of this device; default: of --device")
    parser.add_argument("--dtype", choices=("f32", "tf32", "bf16"), default="f32")
    parser.add_argument("--providers", choices=("auto", "own", "vendor"), default="auto")
    parser.add_argument("--artifacts", type=Path, help="a folder that keeps artifacts for the next comparison")
    parser.add_argument("--entry", choices=("train_step", "predict"), default="train_step")
    parser.add_argument("--locks", type=Path, help="a folder with NAME.lock for models that `dslc tune` measured")
    parser.add_argument("--only-time", action="store_true", help="no comparison of outputs and gradients")


def main(side: type[Ours] = Ours) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=("build", "run"))
    parser.add_argument("name", choices=list(BY_NAME))
    parser.add_argument("folder", type=Path)
    arguments(parser)
    parser.add_argument("--batch", type=int, help="rows")
    asked = parser.parse_args()
    entry = chosen(asked)
    if asked.job == "build":
        answer({"build s": round(build(entry, asked.folder, asked), 1)})
        return
    mine = side(entry, asked.folder, asked.device, asked.only_time)
    answer("ready")
    serve(mine.commands())


if __name__ == "__main__":
    main()

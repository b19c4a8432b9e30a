"""Training by one and by several GPUs: whether all bits are equal, and how long a step takes.

    python benchmarks/ranks_gpu.py                        # on a machine with two GPUs
    python benchmarks/ranks_gpu.py --gpus 1,2,4 --models lenet,gpt2 --what times
    python benchmarks/ranks_gpu.py --build-only --artifacts FOLDER       # no GPU is needed
    python benchmarks/ranks_gpu.py --device cpu --models lenet           # the same with processes on this CPU

``bits``: losses of ``--steps`` steps, and digests of all tensors after them. ``times``: milliseconds of a step, the
least of three turns; each GPU has the same rows, and ``plain`` is one GPU with a model without shards. ``scaling`` is
the rate of G GPUs by G times that of ``plain``; ``bits`` whether the last loss is that of the first number of GPUs;
``mib`` what the driver counts, ``planned`` what `dslc mem` says. ``--peer FILE``: a script for torchrun that prints
JSON lines with ``ms``, given the model's name. Each run is a process of its own with a limit of time; a failed one does
not stop the others.
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, Final

import numpy as np

ROOT: Final = Path(__file__).resolve().parent.parent
_SGD: Final = "sgd(lr=0.01, momentum=0.9)"
_ADAMW: Final = "adamw(lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)"


@dataclass(frozen=True)
class Model:
    """``file``: of the model, with its name; ``rows``: of a GPU in ``times``, of a whole step in ``bits``."""

    what: str
    file: str
    labels: str
    optimizer: str
    rows: int
    arguments: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    loss: str = "cross_entropy(output, label)"
    precision: str = "f32"
    more: str = ""


_SMALL_GPT: Final = {"layers": "2", "heads": "4", "d": "128", "vocab": "512", "p": "0.1"}
_GPT: Final = {"vocab": "50304", "p": "0"}
MODELS: Final = {
    "lenet": Model("bits", "examples/digits/lenet.nn:LeNet", "label: i32[B]", _SGD, 64),
    "resnet18": Model("bits", "benchmarks/resnet18_cifar.nn:ResNet18", "label: i32[B]", _SGD, 64),
    "narrow": Model(
        "bits", "benchmarks/resnet18_cifar.nn:ResNet18", "label: i32[B]", _SGD, 16, {"width": "16"}
    ),
    "transformer": Model(
        "bits", "examples/models/gpt2.nn:GPT2", "label: i32[B, T]", _ADAMW, 16, _SMALL_GPT, {"T": 128}
    ),
    "micro": Model("bits", "examples/digits/lenet.nn:LeNet", "label: i32[B]", _SGD, 64, more="accumulate = 3"),
    "half": Model(
        "bits", "examples/models/gpt2.nn:GPT2", "label: i32[B, T]", _ADAMW, 16, _SMALL_GPT, {"T": 128}, precision="f16"
    ),
    "resnet50": Model(
        "times", "examples/resnet/resnet.nn:ResNet50", "label: i32[B]", _SGD, 256, precision="bf16",
        loss="cross_entropy(output, label, smoothing=0.1)",
    ),
    "gpt2": Model(
        "times", "examples/models/gpt2.nn:GPT2", "label: i32[B, T]", _ADAMW, 16, _GPT, {"T": 1024}, precision="bf16"
    ),
}  # fmt: skip


def source(model: Model, shards: int) -> str:
    """The model's text with a train section and a mesh of this comparison."""
    file, _, name = model.file.partition(":")
    text = (ROOT / file).read_text(encoding="utf-8")
    text = re.sub(r"^(train|mesh) .*?^}\n", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^(precision|budget) .*\n", "", text, flags=re.MULTILINE)
    entries = f"  loss = {model.loss}\n  optimizer = {model.optimizer}\n  {model.more}\n"
    train = f"train {name}({model.labels}) {{\n{entries}}}\n"
    return f"{text}\n{train}" + (f"mesh {{ shards = {shards} }}\n" if shards > 1 else "")


class Builds:
    """``dslc build`` in processes of their own, a few at once; artifacts that are in the folder are taken."""

    def __init__(self, folder: Path, asked: argparse.Namespace) -> None:
        self._folder, self._asked = folder, asked

    def path(self, name: str, shards: int) -> Path:
        return self._folder / f"{name}_{shards}" / f"{name}_{shards}.dslc"

    def make(self, wanted: Sequence[tuple[str, int]]) -> None:
        with ThreadPoolExecutor(self._asked.jobs) as pool:
            list(pool.map(lambda each: self._make(*each), wanted))

    def _make(self, name: str, shards: int) -> None:
        path, model, asked = self.path(name, shards), MODELS[name], self._asked
        if path.exists():
            return say(f"{path.name} is there")
        file = self._folder / f"{name}_{shards}.nn"
        file.write_text(source(model, shards), encoding="utf-8")
        rows = (asked.rows or model.rows) * (shards if model.what == "times" else 1)
        sizes = {"train:B": rows, "eval:B": 1, "predict:B": 1, **model.sizes}
        provider = asked.providers or ("vendor" if model.what == "times" and asked.device == "gpu" else "own")
        given = ["--target", asked.target, "--precision", model.precision, "--providers", provider]
        given += [word for n, v in sizes.items() for word in ("--size", f"{n}={v}")]
        given += [word for n, v in model.arguments.items() for word in ("-D", f"{n}={v}")]
        called = f"{file}:{model.file.partition(':')[2]}"
        begun = time.monotonic()
        command = [sys.executable, "-m", "dslc", "build", called, "--name", path.stem, "-o", str(self._folder), *given]
        code, said = run(command, asked.limit)
        say(f"{path.name} took {time.monotonic() - begun:.0f} s to build" if not code else f"{called}: {said}")


def run(command: Sequence[str], limit: float) -> tuple[int, str]:
    """A command's exit code and what it said; it and what it started are killed at the limit."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, cwd=ROOT
    )
    try:
        said, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return 124, f"more than {limit:.0f} s\n" + process.communicate()[0]
    return process.returncode, said


def say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


# One run: a job in a file, by one process or by several


def started(job: Mapping[str, Any], folder: Path, limit: float) -> dict[str, Any] | None:
    """What a job found, by as many processes as it says; None if it failed, which is printed with all messages."""
    here = Path(mkdtemp(dir=folder))
    (here / "job.json").write_text(json.dumps({**job, "folder": str(here), "limit": limit}), encoding="utf-8")
    code, said = run([sys.executable, __file__, "--launch", str(here / "job.json")], limit)
    found = here / "found.json"
    if code == 0 and found.exists():
        result: dict[str, Any] = json.loads(found.read_text(encoding="utf-8"))
        return result
    logs = "".join(f"--- {log.name}\n{log.read_text(errors='replace')[-6000:]}\n" for log in sorted(here.glob("*.log")))
    say(f"FAILED ({code}) {job['name']} {job['what']} by {job['gpus']}:\n{said[-6000:]}\n{logs}")
    return None


def launched(file: Path) -> int:
    """Starts the ranks of a job by the launch contract."""
    from dslc.runtime.ranks.launch import launch

    job = json.loads(file.read_text(encoding="utf-8"))
    command = [sys.executable, __file__, "--rank", str(file)]
    return subprocess.run(command).returncode if job["gpus"] == 1 else launch(command, job["gpus"], os.environ)


def as_rank(file: Path) -> int:
    job = json.loads(file.read_text(encoding="utf-8"))
    rank = int(os.environ.get("RANK", "0"))
    with open(Path(job["folder"]) / f"rank{rank}.log", "w", encoding="utf-8") as log:
        faulthandler.enable(log)
        faulthandler.dump_traceback_later(max(5.0, job["limit"] - 8), exit=False, file=log)
        try:
            found = worked(job)
        except BaseException:
            traceback.print_exc(file=log)
            raise
        finally:
            faulthandler.cancel_dump_traceback_later()
    if rank == 0:
        (Path(job["folder"]) / "found.json").write_text(json.dumps(found), encoding="utf-8")
    return 0


def worked(job: Mapping[str, Any]) -> dict[str, Any]:
    """The part of this rank."""
    from dslc.compiler.ops.registry import meanings
    from dslc.runtime.ranks.contract import place_of
    from dslc.runtime.ranks.group import Group
    from dslc.runtime.ranks.launch import end_with_launcher
    from dslc.runtime.session import measure
    from dslc.runtime.session.load import load

    place = place_of(os.environ)
    end_with_launcher(os.environ)
    with ExitStack() as held:
        group = None if place is None else held.enter_context(Group(place))
        rank, size = (0, 1) if group is None else (group.rank, group.size)
        device = job["device"] if job["device"] == "cpu" else f"gpu:{0 if place is None else place.local_rank}"
        given: dict[str, Any] = {"weights": "init", "seed": 1, "calls": ("train_step",), "meanings": meanings}
        given |= {"part": (rank, size)}
        begun = time.perf_counter()
        session = held.enter_context(load(job["artifact"], device=device, **given))
        if group is not None:
            group.agree({"the artifact": session.artifact.id, **session.facts()})
            session.join(group)
        opened = time.perf_counter() - begun
        program = measure.program_of(session, "train_step", {})

        def inputs(seed: int) -> dict[str, Any]:
            whole = measure.random_inputs(session, program, seed)
            return {n: np.split(array, size)[rank] for n, array in whole.items()}

        if job["what"] == "bits":
            results = [session.train_step(**inputs(step)) for step in range(job["steps"])]
            losses = [float(result.loss).hex() for result in results]
            tensors = session.state_tensors()
            return {"losses": losses, "state": {n: hashlib.sha256(t.tobytes()).hexdigest() for n, t in tensors.items()}}
        ready = {n: on_device(session, array) for n, array in inputs(0).items()}
        ms, host, last = timed(session, ready, group, job["steps"])
        memory = used(session.device)
        found = {"ms": ms, "host_ms": host, "last": last, "opened_s": opened, "mib": memory}
        return {**found, "counters": dict(session.counters)}


def on_device(session: Any, array: Any) -> Any:
    """A large array of numbers without a range, in the memory of the session's GPU."""
    if session.device == "cpu" or array.nbytes < 1 << 20 or array.dtype.kind == "i":
        return array
    from dslc.runtime.cuda.arrays.arrays import new_array
    from dslc.runtime.cuda.device import device, index_of

    gpu = device(index_of(session.device))
    with gpu:
        found = new_array(gpu, {"uint8": "u8", "float32": "f32"}[str(array.dtype)], array.shape)
        gpu.driver.copy_in(found.address, array.ctypes.data, array.nbytes, gpu.inbox)
        gpu.driver.synchronise(gpu.inbox)
    return found


def timed(session: Any, inputs: Mapping[str, Any], group: Any, steps: int) -> tuple[float, float, str]:
    """Milliseconds of a step, and of the calls that start one, the least of three turns; and the last loss."""
    least = [float("inf"), float("inf")]
    for turn in range(4):  # the first one warms up
        if group is not None:
            group.gathered(np.zeros(1, np.uint8))  # all begin together
        begun = time.perf_counter()
        for _ in range(steps):
            result = session.train_step(**inputs)
        called = time.perf_counter()
        float(result.loss)
        ended = time.perf_counter()
        if turn:
            least = [min(a, 1e3 * (b - begun) / steps) for a, b in zip(least, (ended, called))]
    return least[0], least[1], float(result.loss).hex()


def used(device: str) -> int:
    """MiB in use on a GPU, by all that there is."""
    if device == "cpu":
        return 0
    from dslc.runtime.cuda.device import memory_info

    info = memory_info(device)
    return (info.total - info.free) >> 20


# The comparison


def compared(names: Sequence[str], builds: Builds, asked: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """A row for each model and number of GPUs. ``bits`` is whether all are those of one GPU."""
    rows: list[dict[str, Any]] = []
    for name in names:
        model, shards, plain = MODELS[name], asked.shards, None
        rows_each = asked.rows or model.rows
        job = {"name": name, "what": model.what, "device": asked.device, "steps": asked.steps}
        if model.what == "times":
            job["steps"] = asked.timed_steps
            plain = started({**job, "artifact": str(builds.path(name, 1)), "gpus": 1}, folder, asked.limit)
            rows.append({"model": name, "gpus": "plain", "rows": rows_each, **(plain or {"failed": True})})
            show(rows[-1])
        first: dict[str, Any] | None = None
        for gpus in asked.gpus:
            job |= {"artifact": str(builds.path(name, shards)), "gpus": gpus}
            found = started(job, folder, asked.limit)
            row: dict[str, Any] = {"model": name, "gpus": gpus, "rows": rows_each}
            if found is None:
                row["failed"] = True
            elif model.what == "bits":
                first = first or found
                row |= differences(first, found)
            else:
                first = first or found
                row |= found | {"rows": rows_each * shards, "bits": found["last"] == first["last"]}
                row |= planned(builds.path(name, shards), gpus)
                if plain is not None:
                    row["scaling"] = round(row["rows"] / found["ms"] / (gpus * rows_each / plain["ms"]), 4)
            rows.append(row)
            show(row)
        for gpus in asked.gpus if asked.peer and model.what == "times" else ():
            rows += peer(name, gpus, asked)
    return rows


def planned(artifact: Path, gpus: int) -> dict[str, Any]:
    """MiB of each GPU as `dslc mem` tells them: all without NCCL, which GPUs of one host do not load, and those of the
    session."""
    code, said = run([sys.executable, "-m", "dslc", "mem", str(artifact), "--gpus", str(gpus), "--json"], 60)
    if code:
        return {}
    [row] = next(iter(json.loads(said)["gpus"].values()))
    return {"planned": row["direct"] >> 20, "planned_session": row["session"] >> 20}


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    losses = sum(a != b for a, b in zip(one["losses"], other["losses"], strict=True))
    tensors = [name for name, digest in one["state"].items() if other["state"].get(name) != digest]
    return {"bits": not (losses or tensors), "steps": len(one["losses"]), "other losses": losses,
            "tensors": len(one["state"]), "other tensors": len(tensors), "last": float.fromhex(other["losses"][-1])
            }  # fmt: skip


def peer(name: str, gpus: int, asked: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of the other side's script."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(gpus), str(asked.peer), name]
    code, said = run(command, asked.peer_limit)
    found = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    if code or not found:
        say(f"peer {name} by {gpus} ended with {code}:\n{said[-3000:]}")
    rows = [{"model": name, **row} for row in found]
    for row in rows:
        show(row)
    return rows


def show(row: Mapping[str, Any]) -> None:
    say(", ".join(f"{key} {value:.3f}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(each) for each in text.split(",")]  # noqa: E731
    parser.add_argument("--gpus", type=numbers, default=[1, 2], help="1,2,4: numbers of GPUs")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--what", default="bits,times")
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200, help="of bits")
    parser.add_argument(
        "--rows", type=int, help="of a whole step in bits, of a GPU in times; by default the model's own"
    )
    parser.add_argument("--timed-steps", type=int, default=20, help="of each turn of times")
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--target", help="of the build; by default sm_90 or cpu")
    parser.add_argument("--providers", help="of the builds; by default vendor for times on GPUs, else own")
    parser.add_argument("--jobs", type=int, default=2, help="builds at once")
    parser.add_argument("--artifacts", type=Path, help="where artifacts are, or are put")
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("--limit", type=float, default=240, help="seconds of each build and run")
    parser.add_argument("--peer", type=Path)
    parser.add_argument("--peer-limit", type=float, default=180)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--launch", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.launch is not None:
        return launched(asked.launch)
    if asked.rank is not None:
        return as_rank(asked.rank)
    asked.target = asked.target or ("cpu" if asked.device == "cpu" else "sm_90")
    names = [n for n in asked.models.split(",") if MODELS[n].what in asked.what.split(",")]
    with TemporaryDirectory() as temporary:
        folder = (asked.artifacts or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        builds = Builds(folder, asked)
        builds.make([(n, s) for n in names for s in (asked.shards, 1) if s > 1 or MODELS[n].what == "times"])
        if asked.build_only:
            return 0
        rows = compared(names, builds, asked, Path(temporary))
    if asked.json is not None:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print()
    for row in rows:
        show({k: v for k, v in row.items() if k != "counters"})
    return int(any(row.get("failed") or row.get("bits") is False for row in rows))


if __name__ == "__main__":
    sys.exit(main())

"""Files whose names and contents try to command a terminal, and how each command meets them."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

#: A start that is fine, then: colour and title sequences, DEL, C1 controls, marks of direction, zero-width characters,
#: a forged line, a carriage return, tags and fillers that show nothing, and markup of rich and HTML.
NASTY = (
    "n\x1b[31m\x1b]0;owned\x07\x7f\x9b32m\x85\u202eevil\u2066\u200b\u200d\ufeff\u2028\nFORGED ok\r\x08"
    "\U000e0041\u3164\u00ad[red][link=x]y[/link]:skull:<b onload=1>&"
)
#: The same with what no file's name can hold: NUL, a half pair, a slash.
ALL = NASTY + "\x00\ud800/"
#: As a name of a file: with bytes that are no UTF-8, which Python reads as half pairs.
FILE = NASTY.replace("/", "") + os.fsdecode(b"\xff\xfe")

NET = """nn 1
dim B in 1..8 = 4
model Net(x: [B, 2]) -> [B, 2] { return x |> linear(2) as head }
train Net(label: i32[B]) {
  loss = cross_entropy(output, label)
  optimizer = sgd(lr=0.1)
}
"""
CONFIG = """model: net.nn
data: {train: {x: data.npz:x, label: data.npz:y}, eval: {x: data.npz:x, label: data.npz:y}}
train: {epochs: 1}
save: {dir: runs/net}
"""


def lay_out(folder: Path, artifact: Callable[[], Path]) -> None:
    """A project, and next to its files those of somebody hostile. ``artifact`` builds it."""
    x, y = np.ones((8, 2), np.float32), np.zeros(8, np.int32)
    np.savez(folder / "data.npz", x=x, y=y)
    (folder / "net.nn").write_text(NET)
    (folder / "dslc.yaml").write_text(CONFIG)
    (folder / f"{FILE}.nn").write_text(NET.replace("dim B", "dim  B"))
    (folder / f"{FILE}-bad.nn").write_text(NET.replace("linear", f"linear  # {NASTY}"), newline="")
    (folder / f"{FILE}.csv").write_text(f'"{NASTY.replace(chr(10), "").replace(chr(13), "")}",b\n1,2\n', newline="")
    np.savez(folder / "bad.npz", **{NASTY: x})
    (folder / f"{FILE}.npz").write_bytes((folder / "data.npz").read_bytes())
    np.save(folder / f"{FILE}.npy", x)
    for name in ("a", FILE):
        (folder / "images" / name).mkdir(parents=True)
        (folder / "images" / name / f"{FILE}.png").write_bytes(b"no image" + NASTY.encode())
    (folder / f"{FILE}.yaml").write_text(f"model: [{json.dumps(NASTY)}]\n{NASTY}: 1\n", newline="")
    (folder / f"{FILE}.lock").write_text("format = 1\n")
    (folder / f"{FILE}-bad.lock").write_text(f"format = 1\n{NASTY} = 1\n", newline="")
    (folder / "key.lock").write_text(f"format = 1\n[{json.dumps(NASTY)}.{json.dumps(NASTY)}]\nways = []\n")
    (folder / "quoted.yaml").write_text(f"{CONFIG}args: {{a: {json.dumps(NASTY)}}}\n")
    (folder / "key.yaml").write_text(f"{CONFIG}{json.dumps(NASTY)}: 1\n")
    named = NASTY + "\x00/"  # a half pair is refused before any name is looked at
    (folder / "weights.safetensors").write_bytes(safetensors({named: x, "head.weight": np.ones((2, 2), np.float32)}))
    (folder / f"{FILE}-half.safetensors").write_bytes(safetensors({ALL: x}))
    (folder / f"{FILE}.safetensors").write_bytes(safetensors({f"head.{NASTY}": x}))
    (folder / "bench.json").write_text(json.dumps({"step": {"median": 1}, "lines": [{"line": ALL, "seconds": 1}],
                                                   "name": ALL}))  # fmt: skip
    hostile(artifact(), folder / f"{FILE}.dslc")
    hostile(artifact(), folder / "odd.dslc")
    for name in ("odd", FILE):
        shutil.copytree(folder / "runs/net", folder / "runs" / name)
        for record in ("run.json", "config.json"):
            path = folder / "runs" / name / record
            path.write_text(json.dumps(_nasty(json.loads(path.read_text()))))
    (folder / f"{FILE}-damaged.dslc").write_bytes(b"\x89DSLC" + NASTY.encode())


def _nasty(found: Any, at: str = "") -> Any:
    """A record of a run with hostile words in place of those that are free, and as the name of a metric."""
    if isinstance(found, dict):
        return {NASTY if at == "metrics" else key: _nasty(value, key) for key, value in found.items()}
    if isinstance(found, list):
        return [_nasty(value, at) for value in found]
    return NASTY if isinstance(found, str) and at not in ("state", "started", "ended") else found


def safetensors(tensors: dict[str, np.ndarray]) -> bytes:
    """A file of f32 tensors, whatever their names."""
    head, body = {}, b""
    for name, array in tensors.items():
        head[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [len(body), len(body) + array.nbytes]}
        body += array.tobytes()
    text = json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text + body


def hostile(source: Path, target: Path) -> None:
    """The artifact with free texts of its header changed."""
    from dslc.runtime.artifact import container
    from dslc.runtime.artifact.file import read_artifact

    found = read_artifact(source)
    blobs = [container.Blob(b["name"], b["kind"], bytes(found.blob(b["name"]))) for b in found.header["blobs"]]
    options = {**found.header["options"], NASTY: NASTY, "precision": {"compute": NASTY, "params": "f32"}}
    target.write_bytes(container.pack({**found.header, "options": options}, blobs))


ODD = ["--artifact", "odd.dslc"]
#: Of each command the calls that bring such text to it.
CASES: dict[str, list[list[str]]] = {
    "new": [["new", FILE], ["new", f"{FILE}d/good"], ["new", "images"], ["new", f"images/{FILE}"]],
    "check": [["check", f"{FILE}.nn"], ["check", f"{FILE}-bad.nn"], ["check", f"{FILE}-none.nn"],
              ["check", f"net.nn:{FILE}"], ["check", "net.nn", "-D", f"{FILE}=1"],
              ["check", "net.nn", "-D", f"a={FILE}"]],
    "fmt": [["fmt", "--check", f"{FILE}.nn"], ["fmt", "--diff", f"{FILE}.nn"], ["fmt", f"{FILE}.nn"], ["fmt", "."],
            ["fmt", f"{FILE}-none.nn"]],
    "explain": [["explain", FILE]],
    "ops": [["ops", FILE], ["ops", "--package", FILE], ["ops", "--package", FILE, "--test"]],
    "build": [["build", f"{FILE}.nn"], ["build", "net.nn", "-o", FILE], ["build", "net.nn", "--name", FILE],
              ["build", "net.nn", "--report", f"{FILE}.html"], ["build", "net.nn", "--target", FILE],
              ["build", "net.nn", "--size", f"{FILE}=1"], ["build", "net.nn", "-o", f"{FILE}.npz"]],
    "verify": [["verify", f"{FILE}.dslc"], ["verify", f"{FILE}-none"], ["verify", f"{FILE}-damaged.dslc"],
               ["verify", "odd.dslc", "--digest", FILE], ["verify", "build/net", "--rebuild", f"{FILE}.nn"]],
    "warm": [["warm", f"{FILE}.dslc", "--device", "cpu"], ["warm", "odd.dslc", "--device", FILE],
             ["warm", f"{FILE}-none", "--device", "cpu"]],
    "tune": [["tune", f"{FILE}.nn", "--size", f"{FILE}=1"], ["tune", f"{FILE}-bad.nn"], ["tune", f"{FILE}-none.nn"],
             ["tune", "net.nn", "-D", f"{FILE}=1"], ["tune", "net.nn", "--device", FILE],
             ["tune", "net.nn", "--budget", FILE], ["tune", "net.nn", "--workspace-limit", FILE]],
    "lock": [["lock", "--lock", f"{FILE}.lock"], ["lock", "--lock", f"{FILE}-bad.lock"], ["lock", "--lock", FILE],
             ["lock", "--diff", f"{FILE}-bad.lock", "key.lock"], ["lock", "--lock", "key.lock"],
             ["lock", "--check", "net.nn", "--target", "sm_90", "--lock", f"{FILE}-bad.lock"],
             ["lock", "--check", "net.nn", "--target", "sm_90", "--lock", f"{FILE}.lock", "--gpu", FILE]],
    "train": [["train", "--set", f"data.train.x={FILE}.npz:x", "--set", f"save.dir={FILE}-runs"],
              ["train", "--set", f"data.train.x=bad.npz:{FILE}"], ["train", "--set", "data.train.x=bad.npz:x"],
              ["train", "--set", f"data.train.x={FILE}.csv:z"], ["train", "--set", f"data.train.x={FILE}.csv:{FILE}"],
              ["train", "--set", "data.train.x=images"], ["train", "--weights", "weights.safetensors"],
              ["train", "--weights", f"{FILE}.safetensors", "--partial"], ["train", "--map", f"{FILE}=a"],
              ["train", "--config", f"{FILE}.yaml"], ["train", "--config", "quoted.yaml"],
              ["train", "--config", "key.yaml"], ["train", "--set", f"{FILE}=1"], ["train", "--resume", "--set",
              f"save.dir={FILE}-none"], ["train", "--set", f"save.best={FILE}"]],
    "runs": [["runs"], ["runs", "show", FILE], ["runs", "show", "odd"], ["runs", "compare", "odd", "net"],
             ["runs", "compare", FILE, "net"], ["runs", "--sort", FILE],
             ["runs", "--where", f"{FILE}=1"], ["runs", "show", f"../{FILE}"], ["runs", "--config", f"{FILE}.yaml"]],
    "sweep": [["sweep", "--space", f"{FILE}=[1]"], ["sweep", "--space", f"train.base_lr=[{FILE}]"],
              ["sweep", "--space", "train.base_lr=[0.1]", "--name", FILE], ["sweep", "--method", FILE],
              ["sweep", "--space", f"{FILE}=1\nb: 2"],
              ["sweep", "--space", "train.base_lr=[0.1]", "--set", f"{FILE}=1"],
              ["sweep", "--space", "train.base_lr=[0.1]", "--set", f"data.train.x={FILE}-none.npz:x"],
              ["sweep", "--config", f"{FILE}.yaml"]],
    "publish": [["publish", FILE], ["publish", f"../{FILE}"], ["publish", "net", "--set", f"save.dir={FILE}/net"]],
    "eval": [["eval", "--weights", "weights.safetensors"], ["eval", "--weights", f"{FILE}-half.safetensors"],
             ["eval", "--set", f"data.eval.x={FILE}-none.npy", "--weights", "sound.safetensors"],
             ["eval", "--set", "data.eval.x=bad.npz:x", "--weights", "sound.safetensors"],
             ["eval", "--weights", f"{FILE}-none"]],
    "predict": [["predict", f"{FILE}.npz:x", "-o", f"{FILE}-out.npy", "--weights", "sound.safetensors"],
                ["predict", f"bad.npz:{NASTY}", "-o", "y.npy", "--weights", "sound.safetensors"],
                ["predict", f"{FILE}=a.npy", "-o", "y.npy"], ["predict", f"{FILE}.npy", "-o", FILE],
                ["predict", "data.npz:x", "-o", "y.npy", *ODD, "--weights", "weights.safetensors"]],
    "bench": [["bench", "odd.dslc", "--seconds", "0.1"], ["bench", f"{FILE}-none"],
              ["bench", "--seconds", "0.1", "--against", "bench.json"], ["bench", f"{FILE}.nn", "--seconds", "0.1"]],
    "show": [["show", "net.nn", "--svg", f"{FILE}.svg"], ["show", f"{FILE}.nn"], ["show", "net.nn", "--after", FILE],
             ["show", f"{FILE}-none.nn"]],
    "why": [["why", FILE, "net.nn"], ["why", "head", f"{FILE}.nn"], ["why", f"{FILE}.nn:3", f"{FILE}.nn"]],
    "info": [["info", f"{FILE}.dslc", "--weights"], ["info", f"{FILE}-none"], ["info", f"{FILE}-damaged.dslc"]],
    "mem": [["mem", f"{FILE}.dslc"], ["mem", f"{FILE}.nn"], ["mem", "net.nn", "--budget", FILE],
            ["mem", f"{FILE}-none"]],
    "weights": [["weights", "list", "weights.safetensors"], ["weights", "list", f"{FILE}.safetensors"],
                ["weights", "diff", "weights.safetensors", f"{FILE}.safetensors"],
                ["weights", "convert", f"{FILE}.safetensors", f"{FILE}-2.safetensors"],
                ["weights", "convert", f"{FILE}.safetensors", "two.safetensors", "--map", f"a={FILE}"],
                ["weights", "map", f"{FILE}.safetensors", "net.nn"],
                ["weights", "list", f"{FILE}-half.safetensors"],
                ["weights", "list", f"{FILE}-none"], ["weights", "list", f"{FILE}.csv"]],
    "cache": [["cache"], ["cache", "list"], ["cache", FILE]],
    "doctor": [["doctor", "--device", FILE], ["doctor", "--target", FILE]],
    "config": [["config", "--config", f"{FILE}.yaml"], ["config", "--config", "quoted.yaml"],
               ["config", "--set", f"save.dir={FILE}"], ["config", "--set", f"data.train.x={FILE}.npz:{FILE}"],
               ["config", "--set", f"args.a={FILE}"]],
}  # fmt: skip

"""onnxruntime's side of a comparison of predictions on a CPU: the twin, exported by ``torch.onnx``.

    python predict_onnx.py NAME FOLDER --batch 1 --threads 2

Answers when the model is loaded. ``open`` compares with what ``predict_twin.py`` wrote. Needs onnx and onnxruntime too.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from entries import BY_NAME, Entry
from steps import answer, output_error, serve, timed
from twin import known, stirred
from twins import MADE


class Exported:
    """A model in onnxruntime, with all its optimizations and so many threads."""

    def __init__(self, entry: Entry, folder: Path, threads: int) -> None:
        self.folder = folder
        torch.manual_seed(0)
        model = MADE[entry.name](entry.sizes)
        stirred(model)
        given = {name: known(x) for name, x in entry.drawn()[0].items()}
        path, names = folder / "net.onnx", list(given)
        with torch.inference_mode():
            torch.onnx.export(
                model.eval(), (), path, kwargs=given, dynamo=False, input_names=names, output_names=["result"]
            )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        read = {each.name for each in self.session.get_inputs()}
        self.inputs = {name: x.numpy() for name, x in given.items() if name in read}

    def open(self) -> dict[str, float]:
        """The error of a prediction."""
        [found] = self.session.run(["result"], self.inputs)
        return {"output": output_error(np.asarray(found), np.load(self.folder / "prediction.npy"))}

    def run(self, count: int) -> None:
        for _ in range(count):
            self.session.run(["result"], self.inputs)

    def time(self, seconds: str) -> list[tuple[float, float]]:
        return timed(self.run, float(seconds), False)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=list(BY_NAME))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    asked = parser.parse_args()
    exported = Exported(BY_NAME[asked.name].predicting(asked.batch), asked.folder, asked.threads)
    answer("ready")
    serve({"open": exported.open, "time": exported.time})


if __name__ == "__main__":
    main()

"""PyTorch's side of a comparison of predictions: ``twin.py`` without training.

    python predict_twin.py NAME FOLDER --entry predict --batch 1 [--device gpu] [--dtype bf16] [--compile] [--freeze]

The model is in eval mode, under ``inference_mode``. In bf16 its weights are converted once, before ``torch.compile``;
autocast stays on for what a model computes in f32. ``--freeze`` also makes weights constants and folds batchnorms. On
a GPU a prediction is one CUDA graph; a call copies numpy arrays through pinned memory and ends with a numpy array of
its own, as ours does; ``kernels SECONDS`` times the graph alone. Results are f32 on both sides.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from steps import forget_peak, output_error, timed
from torch import Tensor
from twin import Given, Torch, main, named


class Predicting(Torch):
    """A model in eval mode."""

    def start(self) -> dict[str, Any]:
        """Compares, compiles, captures; answers what came out, with the seconds to the end of the first call."""
        model = self.model.eval()
        found: dict[str, Any] = {"parameters": sum(p.numel() for p in model.parameters())}
        exact = None if self.only_time else self.reference()
        self.set_up()
        if self.dtype == "bf16":
            model.bfloat16()
        if exact is not None:
            found["output"] = output_error(self.prediction(self.inputs, self.dtype == "bf16"), exact)
        self.called: Callable[[Given], Tensor] = lambda given: model(**given).float()
        if self.compiled:
            import torch._inductor.config as inductor

            inductor.freezing = self.freeze
            self.called = torch.compile(self.called, dynamic=False)
        forget_peak()
        begun = time.perf_counter()
        self.step()
        self.wait()
        found["step s"] = round(time.perf_counter() - begun, 2)
        self.replay = self.captured() if self.gpu else self.step
        if self.gpu:
            self.pinned = {name: x.cpu().pin_memory() for name, x in self.inputs.items()}
            self.host = {name: x.clone() for name, x in self.pinned.items()}  # not pinned, as a caller's arrays
            self.result = torch.empty_like(self.output, device="cpu", pin_memory=True)
        return found

    def reference(self) -> np.ndarray:
        """Writes the weights and the prediction in the wider dtype."""
        save_file(named(self.model, self.model.state_dict()), self.folder / "weights.safetensors")
        exact = self.in_wider(lambda inputs, labels: self.prediction(inputs))
        np.save(self.folder / "prediction.npy", exact.astype(np.float32))
        return exact

    def step(self) -> None:
        with torch.inference_mode(), self.autocast(self.dtype == "bf16"):
            self.output = self.called(self.inputs)

    def run(self, count: int) -> None:
        """Calls, from the host to the host."""
        for _ in range(count):
            if not self.gpu:
                self.step()
                continue
            with torch.inference_mode():
                for name, x in self.inputs.items():
                    x.copy_(self.pinned[name].copy_(self.host[name]), non_blocking=True)
                self.graph.replay()
                self.result.copy_(self.output, non_blocking=True)
                torch.cuda.synchronize()
                self.result.clone().numpy()

    def kernels(self, seconds: str) -> list[tuple[float, float]]:
        """The milliseconds, and the processor's, of the graph alone."""
        return timed(super().run, float(seconds), True)

    def commands(self) -> dict[str, Callable[..., object]]:
        return super().commands() | {"kernels": self.kernels}


if __name__ == "__main__":
    main(Predicting)

"""PyTorch's side of a comparison.

    python twin.py NAME FOLDER [--device gpu] [--dtype bf16] [--compile] [--only-time]

Writes the weights to FOLDER, with the prediction and the gradients of one step in a wider dtype (f64 on a CPU, f32 on a
GPU), answers how far the asked dtype is from these, and then serves commands (``steps.py``). On a GPU, bf16 is
torch.autocast, images are channels last, and a whole step is one CUDA graph. The twins are in ``twins``. Needs torch,
torchvision, transformers and safetensors.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from entries import BY_NAME, Entry, chosen
from safetensors.torch import save_file
from steps import answer, forget_peak, norm_errors, output_error, resident, serve, timed
from torch import Tensor, nn
from twins import MADE

Given = dict[str, Tensor]
Found = TypeVar("Found")
_MIB: Final = 1 << 20


def stirred(model: nn.Module) -> None:
    """Scales near 1, biases, statistics and layers of zeros are drawn, so that nothing vanishes."""
    with torch.no_grad():
        for name, x in model.state_dict().items():
            if not x.is_floating_point():
                continue
            if name.endswith("running_var") or "layer_scale" in name:
                x.uniform_(0.5, 1.5)
            elif x.dim() == 1:
                x.normal_(1.0 if name.endswith("weight") else 0.0, 0.1)
            elif not x.any():
                x.normal_(0.0, 0.02)


def named(model: nn.Module, tensors: Given) -> Given:
    """On the host, without the wrapper's name, and each tensor once."""
    tied = set(getattr(getattr(model, "inner", None), "_tied_weights_keys", None) or ())
    found = {name.removeprefix("inner."): x.detach().float().cpu().contiguous() for name, x in tensors.items()}
    return {name: x.clone() for name, x in found.items() if name not in tied and not name.endswith("batches_tracked")}


def loss_of(entry: Entry, output: Tensor, labels: Given) -> Tensor:
    """The loss of the entry's train section, in f32 at least."""
    [label] = labels.values()
    output = output.float() if output.dtype == torch.bfloat16 else output
    if entry.loss.startswith("bce"):
        return F.binary_cross_entropy_with_logits(output, label)
    if entry.loss.startswith("mse"):
        return F.mse_loss(output, label)
    axis = 1 if "axis=1" in entry.loss else -1
    return F.cross_entropy(output.movedim(axis, -1).flatten(0, -2), label.flatten(), ignore_index=-100)


class Torch:
    """A model on a device, and the answers to commands."""

    def __init__(self, entry: Entry, asked: argparse.Namespace) -> None:
        self.entry, self.gpu, self.dtype = entry, asked.device == "gpu", asked.dtype
        self.compiled, self.freeze = asked.compile, asked.freeze
        self.folder, self.only_time = asked.folder, asked.only_time
        self.device = torch.device("cuda" if self.gpu else "cpu")
        self.before = resident()
        torch.manual_seed(0)
        self.model = MADE[entry.name](entry.sizes)
        stirred(self.model)
        inputs, labels = ({n: known(a) for n, a in each.items()} for each in entry.drawn())
        self.inputs, self.labels = ({n: a.to(self.device) for n, a in each.items()} for each in (inputs, labels))
        self.model.to(self.device)

    def _rounding(self, tf32: bool) -> None:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32

    def autocast(self, enabled: bool) -> Any:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=enabled, cache_enabled=False)

    def step_of(self, inputs: Given, labels: Given, bf16: bool = False) -> tuple[np.ndarray, float, Given]:
        """The prediction, the loss of a training step, and its gradients by the names of all weights; 0 for
        statistics. All on the host."""
        model = self.model
        prediction = self.prediction(inputs, bf16)
        model.train()
        total = 0.0
        grads: Given = {}
        names = {id(x): name for name, x in model.named_parameters()}
        for parameters, loss_of_part in self.parts():
            with self.autocast(bf16):
                loss = loss_of_part(inputs, labels)
            loss.backward(inputs=parameters)
            total += loss.item()
            grads |= {names[id(x)]: x.grad for x in parameters}
            self.optimizer(parameters).step()
            model.zero_grad()
        found = {n: torch.zeros_like(x) if (g := grads.get(n)) is None else g for n, x in model.state_dict().items()}
        return prediction, total, named(model, found)

    def prediction(self, inputs: Given, bf16: bool = False) -> np.ndarray:
        """In eval mode, as f64 on the host."""
        with torch.inference_mode(), self.autocast(bf16):
            found: np.ndarray = self.model.eval()(**inputs).double().cpu().numpy()
        return found

    def parts(self) -> list[tuple[list[nn.Parameter], Callable[[Given, Given], Tensor]]]:
        """The updates of a step in order: the parameters, and their loss of inputs and labels."""
        model = self.model

        def part(name: str) -> Callable[[Given, Given], Tensor]:
            return lambda inputs, labels: getattr(model, name)(**inputs, **labels)

        if hasattr(model, "loss"):
            return [(list(model.parameters()), part("loss"))]
        listed = getattr(model, "parts", None)
        if listed is None:
            return [(list(model.parameters()), lambda inputs, labels: loss_of(self.entry, model(**inputs), labels))]
        return [(list(getattr(model, layer).parameters()), part(loss)) for layer, loss in listed]

    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        """As ``entries.OPTIMIZERS`` says."""
        kind, rest = self.entry.optimizer, {"lr": 1e-6, "fused": True}
        if kind == "sgd":
            return torch.optim.SGD(parameters, momentum=0.9, **rest)
        if kind == "adam":
            return torch.optim.Adam(parameters, betas=(0.5, 0.999), capturable=self.gpu, **rest)
        return torch.optim.AdamW(parameters, weight_decay=0.01, capturable=self.gpu, **rest)

    def agreement(self) -> dict[str, float]:
        """Writes the weights, and the prediction and gradients in the wider dtype; how far ours is from these."""
        model = self.model
        state = {n: x.clone() for n, x in model.state_dict().items()}
        save_file(named(model, state), self.folder / "weights.safetensors")
        exact, _, gradients = self.in_wider(self.step_of)
        save_file(gradients, self.folder / "gradients.safetensors")
        np.save(self.folder / "prediction.npy", exact.astype(np.float32))
        model.load_state_dict(state)
        self._rounding(self.dtype == "tf32")
        prediction, loss, found = self.step_of(self.inputs, self.labels, self.dtype == "bf16")
        errors = norm_errors(*({n: x.numpy() for n, x in each.items()} for each in (found, gradients)))
        model.load_state_dict(state)
        return {"output": output_error(prediction, exact), "gradient": max(errors.values()), "loss": loss}

    def in_wider(self, compute: Callable[[Given, Given], Found]) -> Found:
        """What ``compute`` makes of the inputs and labels in the wider dtype."""
        self._rounding(False)
        if self.gpu:
            return compute(self.inputs, self.labels)
        self.model.double()
        wide = (
            {n: a.double() if a.is_floating_point() else a for n, a in each.items()}
            for each in (self.inputs, self.labels)
        )
        found = compute(*wide)
        self.model.float()
        return found

    def start(self) -> dict[str, Any]:
        """Compares, compiles, captures; answers what came out, with the seconds to the end of the first step."""
        found: dict[str, Any] = {"parameters": sum(p.numel() for p in self.model.parameters())}
        if not self.only_time:
            found |= self.agreement()
        self.set_up()
        self.model.train()
        self.updates = []
        for parameters, loss in self.parts():
            called = torch.compile(loss, dynamic=False) if self.compiled else loss
            self.updates.append((parameters, called, self.optimizer(parameters)))
        forget_peak()
        begun = time.perf_counter()
        self.step()
        self.wait()
        found["step s"] = round(time.perf_counter() - begun, 2)
        self.replay = self.captured() if self.gpu else self.step
        return found

    def set_up(self) -> None:
        """The rounding that was asked for; on a GPU, images are channels last."""
        self._rounding(self.dtype == "tf32")
        torch.backends.cudnn.benchmark = True
        layout: Any = {4: torch.channels_last, 5: torch.channels_last_3d}.get(_rank(self.model))
        if self.gpu and layout is not None:
            self.model.to(memory_format=layout)

    def step(self) -> None:
        for parameters, loss, optimizer in self.updates:
            with self.autocast(self.dtype == "bf16"):
                value = loss(self.inputs, self.labels)
            value.backward(inputs=parameters)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def wait(self) -> None:
        if self.gpu:
            torch.cuda.synchronize()

    def captured(self) -> Callable[[], object]:
        """A whole step as a CUDA graph. Memory counts from here: what compilation needed is given back."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        graph.replay()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.graph = graph
        return graph.replay

    def run(self, count: int) -> None:
        for _ in range(count):
            self.replay()
        self.wait()

    def time(self, seconds: str) -> list[tuple[float, float]]:
        return timed(self.run, float(seconds), self.gpu)

    def commands(self) -> dict[str, Callable[..., object]]:
        return {"time": self.time, "memory": self.memory}

    def memory(self) -> dict[str, float]:
        """MiB: on a GPU the most that was allocated, and what is reserved."""
        if not self.gpu:
            return {"MiB": round(resident(peak=True) - self.before)}
        reserved = torch.cuda.memory_reserved()
        return {"MiB": round(torch.cuda.max_memory_allocated() / _MIB), "reserved MiB": round(reserved / _MIB)}


def _rank(model: nn.Module) -> int:
    """Of the weights of convolutions; 0 without any."""
    kinds = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.ConvTranspose3d)
    return max((m.weight.dim() for m in model.modules() if isinstance(m, kinds)), default=0)


def known(x: np.ndarray) -> Tensor:
    """A tensor as torch's functions want it: numbers of rows are i64."""
    return torch.from_numpy(x.astype(np.int64) if x.dtype == np.int32 else x)


def main(side: type[Torch] = Torch) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=list(BY_NAME))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--sizes", choices=("cpu", "gpu"))
    parser.add_argument("--dtype", choices=("f32", "tf32", "bf16"), default="f32")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--freeze", action="store_true")
    parser.add_argument("--only-time", action="store_true")
    parser.add_argument("--entry", choices=("train_step", "predict"), default="train_step")
    parser.add_argument("--batch", type=int, help="rows")
    asked = parser.parse_args()
    twin = side(chosen(asked), asked)
    answer(twin.start())
    serve(twin.commands())


if __name__ == "__main__":
    main()

"""The originals themselves, made by torchvision and transformers.

    PYTHONPATH=tests/support python -m published.originals names FOLDER
    PYTHONPATH=tests/support python -m published.originals values FOLDER

``names``: FAMILY.csv, names and shapes of the published models' weights. ``values``: NAME.npz, names and shapes of a
small model's weights, and its predictions.

Runs where torch, torchvision and transformers are installed, and needs no dslc.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import torchvision.models as vision
import transformers as hf
from numpy.typing import NDArray

from published.cases import PUBLISHED, SMALL
from published.values import inputs, weight

_LARGE: Final = {"num_hidden_layers": 24, "num_attention_heads": 16, "hidden_size": 1024, "intermediate_size": 4096}
_BERT: Final = {
    "vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128
}  # fmt: skip
_GPT2: Final = {"vocab_size": 50, "n_embd": 32, "n_layer": 2, "n_head": 2, "bos_token_id": 0, "eos_token_id": 0}
_MADE: Final[dict[str, Callable[[], Any]]] = {
    "bert-base": lambda: hf.BertModel(hf.BertConfig()),
    "bert-large": lambda: hf.BertModel(hf.BertConfig(**_LARGE)),
    "bert-base-classifier": lambda: hf.BertForSequenceClassification(hf.BertConfig()),
    "bert-base-masked": lambda: hf.BertForMaskedLM(hf.BertConfig()),
    "bert-tiny": lambda: hf.BertModel(hf.BertConfig(**_BERT)),
    "bert-tiny-classifier": lambda: hf.BertForSequenceClassification(hf.BertConfig(**_BERT)),
    "bert-tiny-masked": lambda: hf.BertForMaskedLM(hf.BertConfig(**_BERT)),
    "gpt2": lambda: hf.GPT2Model(hf.GPT2Config()),
    "gpt2-medium": lambda: hf.GPT2LMHeadModel(hf.GPT2Config(n_embd=1024, n_layer=24, n_head=16)),
    "gpt2-tiny": lambda: hf.GPT2LMHeadModel(hf.GPT2Config(**_GPT2)),
    "vit_tiny": lambda: vision.VisionTransformer(
        image_size=224, patch_size=32, num_layers=2, num_heads=2, hidden_dim=32, mlp_dim=128, num_classes=10
    ),
}
_MEAN: Final = torch.tensor([0.485, 0.456, 0.406]).reshape(1, 3, 1, 1)
_STD: Final = torch.tensor([0.229, 0.224, 0.225]).reshape(1, 3, 1, 1)


def names(folder: Path) -> None:
    """FAMILY.csv: ``model,weight,AxBxC`` a line, in the order of the original."""
    lines: dict[str, list[str]] = {}
    for case in PUBLISHED:
        with torch.device("meta"):
            model = _MADE[case.name]() if case.name in _MADE else getattr(vision, case.name)()
        for name, tensor in model.state_dict().items():
            lines.setdefault(case.family, []).append(f"{case.name},{name},{'x'.join(map(str, tensor.shape))}\n")
    for family, found in lines.items():
        (folder / f"{family}.csv").write_text("".join(found), encoding="utf-8")


def predictions(name: str) -> dict[str, NDArray[Any]]:
    """What a small model predicts in f32, as ``result.NAME``; ``names`` of its weights, and their ``shapes`` AxBxC."""
    model = (_MADE[name]() if name in _MADE else getattr(vision, name)(num_classes=10)).eval()
    state = {n: t for n, t in model.state_dict().items() if t.is_floating_point()}
    tied = dict(getattr(model, "_tied_weights_keys", None) or {})
    with torch.no_grad():
        for at, tensor in state.items():
            if at not in tied:
                tensor.copy_(torch.from_numpy(weight(at, tuple(tensor.shape))))
        found = _results(model, inputs(name))
    return {
        "names": np.array(list(state)),
        "shapes": np.array(["x".join(map(str, tensor.shape)) for tensor in state.values()]),
        **{f"result.{k}": v.numpy() for k, v in found.items()},
    }


def _results(model: Any, given: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    if "image" in given:
        return {"output": model((torch.from_numpy(given["image"]).permute(0, 3, 1, 2) / 255 - _MEAN) / _STD)}
    found = model(*(torch.from_numpy(v).long() for v in given.values())) if "mask" in given else model(
        torch.from_numpy(given["ids"]).long()
    )  # fmt: skip
    if "logits" in found:
        return {"output": found.logits}
    return {"hidden": found.last_hidden_state, "pooled": found.pooler_output}


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("names", "values"):
        raise SystemExit(__doc__)
    folder = Path(sys.argv[2])
    if sys.argv[1] == "names":
        names(folder)
    else:
        for small in SMALL:
            np.savez_compressed(folder / f"{small.name}.npz", **predictions(small.name))

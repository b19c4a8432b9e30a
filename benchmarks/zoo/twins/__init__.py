"""The models of the zoo in PyTorch: torchvision's and transformers' where they have them, else written here.

The names of the weights of the models here are those of dslc's. Needs torch, torchvision and transformers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torchvision.models as vision
from torch import nn

from twins.images import Image
from twins.points import DLRM, PointNet
from twins.text import Bert, Llama

MADE: Final[dict[str, Callable[[], nn.Module]]] = {
    "MobileNetV2": lambda: Image(vision.mobilenet_v2(dropout=0.0)),
    "ShuffleNetV2": lambda: Image(vision.shufflenet_v2_x1_0()),
    "EfficientNet-B0": lambda: Image(vision.efficientnet_b0(dropout=0.0, stochastic_depth_prob=0.0)),
    "ConvNeXt-T": lambda: Image(vision.convnext_tiny(stochastic_depth_prob=0.0)),
    "DenseNet-121": lambda: Image(vision.densenet121()),
    "ViT-B/16": lambda: Image(vision.vit_b_16()),
    "BERT-base": Bert,
    "Llama 125M": Llama,
    "DLRM": DLRM,
    "PointNet": PointNet,
}

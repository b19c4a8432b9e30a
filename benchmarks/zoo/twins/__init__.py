"""The models of the zoo in PyTorch: torchvision's and transformers' where they have them, else written here.

The names of the weights of the models here are those of dslc's. Needs torch, torchvision and transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torchvision.models as vision
from torch import nn

from twins.decoders import DeBERTa, Gemma2, Mamba, RetNet
from twins.dense import DeepLab, SegFormer, UNet
from twins.fields import FNO, DeepSeek, NeRF, PatchTST
from twins.generate import DCGAN, DDPM, UNet3D, WaveNet
from twins.hearing import Conformer, EnCodec
from twins.images import ConvMixer, Image
from twins.late import JiT, ModernBert, Yolo12
from twins.latent import VQVAE, DiT, StableDiffusion
from twins.listed import DCN, GAT, SASRec
from twins.objects import DETR, Detector
from twins.patches import CapsNet, Mixer, SwinIR, XCiT
from twins.points import DLRM, GCN, PointNet
from twins.recent import GatedLM, TabPFN, TimeMixer
from twins.science import DGCNN, KAN, Evoformer, SchNet
from twins.series import TFT, XDeepFM
from twins.sound import HiFiGAN
from twins.speech import T5, Wav2Vec2, Whisper
from twins.states import TCN, DeepSpeech2, Mamba2
from twins.styles import CycleGAN, StyleGAN2
from twins.text import Bert, Gpt2, Llama
from twins.translation import MoE, Transformer
from twins.video import R2Plus1D, Raft, VideoSwin

Sizes = Mapping[str, int]


def _image(make: Callable[..., nn.Module], **args: Any) -> Callable[[Sizes], nn.Module]:
    return lambda sizes: Image(make(**args))


def _own(make: Callable[..., nn.Module], *fixed: str) -> Callable[[Sizes], nn.Module]:
    """``fixed``: the sizes that the model takes."""
    return lambda sizes: make(**{name: sizes[name] for name in fixed})


#: vision.swin_t fixes its stochastic depth.
_SWIN_T: Final[dict[str, Any]] = {
    "patch_size": [4, 4], "embed_dim": 96, "depths": [2, 2, 6, 2], "num_heads": [3, 6, 12, 24], "window_size": [7, 7]
}  # fmt: skip

#: vision.maxvit_t fixes it, too.
_MAXVIT_T: Final[dict[str, Any]] = {
    "input_size": (224, 224), "stem_channels": 64, "partition_size": 7, "block_channels": [64, 128, 256, 512],
    "block_layers": [2, 2, 5, 2], "head_dim": 32,
}  # fmt: skip

#: A model for the sizes of its entry.
MADE: Final[dict[str, Callable[[Sizes], nn.Module]]] = {
    "MobileNetV2": _image(vision.mobilenet_v2, dropout=0.0),
    "MobileNetV3": _image(vision.mobilenet_v3_large, dropout=0.0),
    "ShuffleNetV2": _image(vision.shufflenet_v2_x1_0),
    "EfficientNet-B0": _image(vision.efficientnet_b0, dropout=0.0, stochastic_depth_prob=0.0),
    "RegNetY-1.6GF": _image(vision.regnet_y_1_6gf),
    "SqueezeNet": _image(vision.squeezenet1_0, dropout=0.0),
    "ResNet-50": _image(vision.resnet50),
    "ResNet-152": _image(vision.resnet152),
    "ResNeXt-50": _image(vision.resnext50_32x4d),
    "Wide ResNet-50": _image(vision.wide_resnet50_2),
    "Inception-v3": _image(vision.inception_v3, aux_logits=False, init_weights=False, dropout=0.0),
    "DenseNet-121": _image(vision.densenet121),
    "ConvNeXt-T": _image(vision.convnext_tiny, stochastic_depth_prob=0.0),
    "ViT-B/16": _image(vision.vit_b_16),
    "Swin-T": _image(vision.SwinTransformer, **_SWIN_T, stochastic_depth_prob=0.0),
    "BERT-base": _own(Bert),
    "Transformer": _own(Transformer),
    "GPT-2 124M": _own(Gpt2),
    "Llama 125M": _own(Llama),
    "MoE top-2": _own(MoE, "room"),
    "DDPM U-Net": _own(DDPM),
    "3-D U-Net": _own(UNet3D),
    "WaveNet": _own(WaveNet),
    "DCGAN": _own(DCGAN),
    "DLRM": _own(DLRM),
    "PointNet": _own(PointNet),
    "ModernBERT-base": _own(ModernBert),
    "JiT-B/16": _own(JiT, "S"),
    "YOLOv12-S": lambda sizes: Image(Yolo12()),
    "Gated attention 130M": _own(GatedLM),
    "TabPFN v2": _own(TabPFN, "R", "M"),
    "TimeMixer": _own(TimeMixer, "n"),
    "GCN": _own(GCN, "features", "hidden", "classes"),
    "DCN-v2": _own(DCN, "rows"),
    "SASRec": _own(SASRec),
    "Mamba-2, 12 layers": _own(Mamba2, "layers", "vocab"),
    "GAT": _own(GAT),
    "wav2vec 2.0 base": _own(Wav2Vec2, "layers"),
    "T5-base": _own(T5, "layers", "vocab"),
    "Whisper-base": _own(Whisper, "layers", "vocab", "frames"),
    "PatchTST": _own(PatchTST),
    "FNO": _own(FNO, "n"),
    "NeRF": _own(NeRF, "samples"),
    "TCN": _own(TCN),
    "Deep Speech 2": _own(DeepSpeech2, "layers", "hidden"),
    "DeepSeek-V2 layers": _own(DeepSeek, "layers", "vocab", "d", "inner", "count", "narrow", "room"),
    "EfficientNetV2-S": _image(vision.efficientnet_v2_s, dropout=0.0, stochastic_depth_prob=0.0),
    "DeepLabV3": lambda sizes: Image(DeepLab()),
    "SegFormer-B2": lambda sizes: Image(SegFormer()),
    "U-Net 2015": _own(UNet),
    "R(2+1)D-18": _own(R2Plus1D),
    "MaxViT-T": _image(vision.MaxVit, **_MAXVIT_T, stochastic_depth_prob=0.0),
    "HiFi-GAN V1": _own(HiFiGAN),
    "ConvMixer-1536/20": lambda sizes: Image(ConvMixer()),
    "RAFT-small": _own(Raft, "steps"),
    "Mamba, 12 layers": _own(Mamba, "layers", "vocab"),
    "RetNet": _own(RetNet, "layers", "d", "vocab"),
    "DeBERTa-v3-base": _own(DeBERTa, "layers", "vocab"),
    "Gemma 2, 4 layers": _own(Gemma2, "layers", "d", "heads", "kv", "n", "inner", "near", "vocab"),
    "Conformer-M": _own(Conformer, "layers"),
    "EnCodec": _own(EnCodec, "wide"),
    "TFT": _own(TFT, "past", "d"),
    "xDeepFM": _own(XDeepFM, "rows"),
    "DGCNN": _own(DGCNN, "k"),
    "Evoformer, 2 blocks": _own(Evoformer, "blocks"),
    "SchNet": _own(SchNet, "M"),
    "KAN": _own(KAN, "hidden"),
    "DiT-B/2": _own(DiT, "S", "layers"),
    "StyleGAN2": _own(StyleGAN2, "S", "base"),
    "CycleGAN generator": _own(CycleGAN, "width", "count"),
    "DETR": lambda sizes: Detector(DETR(sizes["layers"])),
    "SwinIR": _own(SwinIR, "groups", "layers"),
    "VQ-VAE": _own(VQVAE),
    "MLP-Mixer-B/16": lambda sizes: Image(Mixer(sizes["S"], sizes["layers"])),
    "XCiT-S12/16": lambda sizes: Image(XCiT(sizes["layers"])),
    "Video Swin-T": _own(VideoSwin, "t"),
    "Stable Diffusion v1": _own(StableDiffusion, "width", "units"),
    "CapsNet": _own(CapsNet),
}

"""The maps of weights from torchvision's names to those of the models of this folder, as for ``weights.load``."""

from __future__ import annotations

from typing import Final

_UNITS: Final = "{i:1|2|3|4|5|6|7}", "units.{i:0|1|2|3|4|5|6}.unit"
_CONV: Final = {"0|1": "narrow", "3|4": "depthwise", "5|6": "wide"}  # of a branch
SHUFFLENET: Final = {
    "{m:conv1|conv5}.{n:0|1}": "{m:stem|last}.{n:conv|batchnorm}",
    "stage{k}.0.branch1.{n:0|1}": "stage.{k-2}.down.left_depthwise.{n:conv|batchnorm}",
    "stage{k}.0.branch1.{n:2|3}": "stage.{k-2}.down.left.{n:conv|batchnorm}",
    "fc": "head",
    **{
        f"stage{{k}}.{old}.branch2.{{n:{at}}}": f"stage.{{k-2}}.{new}.right.{part}.{{n:conv|batchnorm}}"
        for old, new in (("0", "down"), _UNITS)
        for at, part in _CONV.items()
    },
}

REGNET: Final = {
    "stem.{n:0|1}": "stem.{n:conv|batchnorm}",
    "fc": "head",
    **{
        f"trunk_output.block{k}.block{k}-{{i}}.{old}": f"stage.{k - 1}.unit.{{i}}.{new}"
        for k in (1, 2, 3, 4)
        for old, new in (
            ("proj.{n:0|1}", "proj.{n:conv|batchnorm}"),
            ("f.{m:a|b|c}.{n:0|1}", "{m:a|b|c}.{n:conv|batchnorm}"),
            ("f.se.{m:fc1|fc2}", "se.{m:fc1|fc2}"),
        )
    },
}
SQUEEZENET: Final = {
    "features.0": "stem",
    "classifier.1": "head",
    **{
        f"features.{at}.{old}": f"fire{number}.{new}"
        for number, at in zip(range(2, 10), (3, 4, 5, 7, 8, 9, 10, 12))
        for old, new in (("squeeze", "squeeze"), ("expand1x1", "left"), ("expand3x3", "right"))
    },
}
INCEPTION: Final = {"*.bn.{p}": "*.batchnorm.{p}"}

_FEED: Final = {"DenseReluDense.{n:wi|wo}": "feed.{n:wi|wo}", "layer_norm": "feed.norm"}
_PROJECTIONS: Final = "{n:k_proj|q_proj|v_proj|out_proj}", "{n:k|q|v|out}"
T5: Final = {
    "shared": "tok",
    "{m:encoder|decoder}.block.0.layer.0.SelfAttention.relative_attention_bias": "{m:encoder_places|decoder_places}",
    "{m:encoder|decoder}.final_layer_norm": "{m:encoder_norm|decoder_norm}",
    "{m:encoder|decoder}.block.{i}.layer.0.SelfAttention.{n:q|k|v|o}": "{m:encoder|decoder}.{i}.attn.{n:q|k|v|o}",
    "{m:encoder|decoder}.block.{i}.layer.0.layer_norm": "{m:encoder|decoder}.{i}.norm",
    "decoder.block.{i}.layer.1.EncDecAttention.{n:q|k|v|o}": "decoder.{i}.cross.{n:q|k|v|o}",
    "decoder.block.{i}.layer.1.layer_norm": "decoder.{i}.norm2",
    **{
        f"{part}.block.{{i}}.layer.{at}.{old}": f"{part}.{{i}}.{new}"
        for part, at in (("encoder", 1), ("decoder", 2))
        for old, new in _FEED.items()
    },
}
WHISPER: Final = {
    "model.encoder.{n:conv1|conv2|layer_norm}": "{n:conv1|conv2|encoder_norm}",
    "model.decoder.layer_norm": "decoder_norm",
    "model.encoder.embed_positions.weight": "times",
    "model.decoder.embed_positions.weight": "places",
    "model.decoder.embed_tokens": "tok",
    "model.{m:encoder|decoder}.layers.{i}.self_attn_layer_norm": "{m:encoder|decoder}.{i}.own.norm",
    "model.decoder.layers.{i}.encoder_attn_layer_norm": "decoder.{i}.norm",
    "model.{m:encoder|decoder}.layers.{i}.{n:fc1|fc2|final_layer_norm}":
        "{m:encoder|decoder}.{i}.feed.{n:fc1|fc2|norm}",
    f"model.{{m:encoder|decoder}}.layers.{{i}}.self_attn.{_PROJECTIONS[0]}":
        f"{{m:encoder|decoder}}.{{i}}.own.attn.{_PROJECTIONS[1]}",
    f"model.decoder.layers.{{i}}.encoder_attn.{_PROJECTIONS[0]}": f"decoder.{{i}}.cross.{_PROJECTIONS[1]}",
}  # fmt: skip
_SOUND: Final = "wav2vec2.feature_extractor.conv_layers"
WAV2VEC2: Final = {
    "lm_head": "head",
    f"{_SOUND}.0.{{n:conv|layer_norm}}": "features.{n:first|norm}",
    **{f"{_SOUND}.{i + 1}.conv": f"features.conv.{i}.conv" for i in range(6)},
    "wav2vec2.feature_projection.{n:layer_norm|projection}": "{n:norm|wide}",
    "wav2vec2.encoder.pos_conv_embed.conv.bias": "places.bias",
    "wav2vec2.encoder.pos_conv_embed.conv.parametrizations.weight.{n:original0|original1}": "places.{n:g|v}",
    "wav2vec2.encoder.layer_norm": "norm2",
    f"wav2vec2.encoder.layers.{{i}}.attention.{_PROJECTIONS[0]}": f"h.{{i}}.attn.{_PROJECTIONS[1]}",
    "wav2vec2.encoder.layers.{i}.feed_forward.{n:intermediate_dense|output_dense}": "h.{i}.{n:fc1|fc2}",
    "wav2vec2.encoder.layers.{i}.{n:layer_norm|final_layer_norm}": "h.{i}.{n:norm1|norm2}",
}

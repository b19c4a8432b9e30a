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
EFFICIENTNETV2: Final = {
    "features.0.{m:0|1}": "stem.{m:conv|batchnorm}",
    "features.7.{m:0|1}": "last.{m:conv|batchnorm}",
    "classifier.1": "head",
    "features.1.{u}.block.0.{m:0|1}": "fused.0.unit.{u}.project.{m:conv|batchnorm}",
    "features.{s:2|3}.{u}.block.{b:0|1}.{m:0|1}":
        "fused.{s:1|2}.unit.{u}.{b:expand|project}.{m:conv|batchnorm}",
    "features.{s:4|5|6}.{u}.block.{b:0|1|3}.{m:0|1}":
        "stage.{s:0|1|2}.unit.{u}.{b:expand|depthwise|project}.{m:conv|batchnorm}",
    "features.{s:4|5|6}.{u}.block.2.fc{n:1|2}": "stage.{s:0|1|2}.unit.{u}.se.fc{n:1|2}",
}  # fmt: skip
DEEPLAB: Final = {
    "backbone.{m:conv1|bn1}": "stem.{m:conv|batchnorm}",
    "backbone.layer{s}.{u}.{m:conv|bn}{c:1|2|3}": "stage.{s-1}.unit.{u}.body.{c:a|b|c}.{m:conv|batchnorm}",
    "backbone.layer{s}.{u}.downsample.{m:0|1}": "stage.{s-1}.unit.{u}.body.proj.{m:conv|batchnorm}",
    "classifier.0.convs.0.{m:0|1}": "pyramid.point.{m:conv|batchnorm}",
    "classifier.0.convs.{i:1|2|3}.{m:0|1}": "pyramid.wide.{i:0|1|2}.window.{m:conv|batchnorm}",
    "classifier.0.convs.4.{m:1|2}": "pyramid.whole.{m:conv|batchnorm}",
    "classifier.0.project.{m:0|1}": "pyramid.project.{m:conv|batchnorm}",
    "classifier.{m:1|2}": "near.{m:conv|batchnorm}",
    "classifier.4": "head",
}
_STAGE: Final = "segformer.stages.{k}"
_LAYER: Final = f"{_STAGE}.blocks.{{i}}", "stage.{k}.h.{i}.layer"
SEGFORMER: Final = {
    f"{_STAGE}.patch_embeddings.{{m:proj|layer_norm}}": "stage.{k}.{m:patches|norm}",
    f"{_STAGE}.layer_norm": "stage.{k}.last",
    f"{_LAYER[0]}.layernorm_{{m:before|after}}": f"{_LAYER[1]}.{{m:ln1|ln2}}",
    f"{_LAYER[0]}.attention.{{m:q|k|v|o}}_proj": f"{_LAYER[1]}.attn.{{m:q|k|v|o}}",
    f"{_LAYER[0]}.attention.sequence_reduction.{{m:sequence_reduction|layer_norm}}":
        f"{_LAYER[1]}.attn.{{m:reduction|norm}}",
    f"{_LAYER[0]}.mlp.{{m:fc1|fc2}}": f"{_LAYER[1]}.{{m:fc1|fc2}}",
    f"{_LAYER[0]}.mlp.dwconv.dwconv": f"{_LAYER[1]}.depthwise",
    "decode_head.linear_projections.{k:0|1|2|3}.proj": "head.{k:3|2|1|0}.unify.proj",
    "decode_head.{m:linear_fuse|batch_norm|classifier}": "{m:fuse|norm|classifier}",
}  # fmt: skip
_CLIP: Final = "layer{s}.{u}.conv{c:1|2}", "stage.{s-1}.unit.{u}.body"
R2PLUS1D: Final = {
    "stem.{m:0|1|3|4}": "{m:space|norm1|time|norm2}",
    f"{_CLIP[0]}.0.{{m:0|1|3}}": f"{_CLIP[1]}.{{c:a|b}}.{{m:space|norm|time}}",
    f"{_CLIP[0]}.1": f"{_CLIP[1]}.{{c:norm1|norm2}}",
    "layer{s}.{u}.downsample.{m:0|1}": "stage.{s-1}.unit.{u}.body.{m:proj|norm3}",
    "fc": "head",
}
_UNIT: Final = "blocks.{k}.layers.{i}.layers", "stage.{k}.unit.{i}"
_CONVS: Final = f"{_UNIT[0]}.MBconv", f"{_UNIT[1]}.conv"
_PARTS: Final = f"{_UNIT[0]}.{{w:window|grid}}_attention", f"{_UNIT[1]}.{{w:window|grid}}"
MAXVIT: Final = {
    "stem.0.{m:0|1}": "{m:stem|norm}",
    "stem.1.0": "stem2",
    f"{_CONVS[0]}.proj.1": f"{_CONVS[1]}.proj",
    f"{_CONVS[0]}.layers.pre_norm": f"{_CONVS[1]}.pre",
    f"{_CONVS[0]}.layers.conv_{{c:a|b}}.0": f"{_CONVS[1]}.{{c:a|b}}",
    f"{_CONVS[0]}.layers.conv_{{c:a|b}}.1": f"{_CONVS[1]}.{{c:na|nb}}",
    f"{_CONVS[0]}.layers.squeeze_excitation": f"{_CONVS[1]}.se",
    f"{_CONVS[0]}.layers.conv_c": f"{_CONVS[1]}.c",
    f"{_PARTS[0]}.attn_layer.0": f"{_PARTS[1]}.ln1",
    f"{_PARTS[0]}.attn_layer.1.{{m:to_qkv|merge}}": f"{_PARTS[1]}.{{m:qkv|merge}}",
    f"{_PARTS[0]}.attn_layer.1.relative_position_bias_table": f"{_PARTS[1]}.bias.weight",
    f"{_PARTS[0]}.attn_layer.1.relative_position_index": None,  # constants
    f"{_PARTS[0]}.mlp_layer.{{m:0|1|3}}": f"{_PARTS[1]}.{{m:ln2|fc1|fc2}}",
    "classifier.{m:2|3|5}": "{m:last|fc|head}",
}
HIFIGAN: Final = {
    "*.parametrizations.weight.original{i:0|1}": "*.{i:g|v}",
    "*.bias": "*.conv.bias",
    "stage.{k}.grow.bias": "stage.{k}.grow.conv_transpose.bias",
}
_RAFT_UNIT: Final = "layer{s}.{u}.convnormrelu{c:1|2|3}.0", "stage.{s-1}.unit.{u}.body.{c:a|b|c}.conv"
_RAFT_ENDS: Final = {
    "convnormrelu.0": "first.conv", "conv": "last", "layer{s}.{u}.downsample.0": "stage.{s-1}.unit.{u}.body.proj.conv",
    _RAFT_UNIT[0]: _RAFT_UNIT[1],
}  # fmt: skip
RAFT: Final = {
    **{
        f"{old}_encoder.{part}": f"{new}.{to}"
        for old, new in (("feature", "encode"), ("context", "context"))
        for part, to in _RAFT_ENDS.items()
    },
    "update_block.motion_encoder.convcorr1.0": "improve.corr1",
    "update_block.motion_encoder.convflow{i:1|2}.0": "improve.flow{i:1|2}",
    "update_block.motion_encoder.conv.0": "improve.joined",
    "update_block.recurrent_block.convgru1.conv{g:z|r|q}": "improve.{g:z|r|q}",
    "update_block.flow_head.conv{i:1|2}": "improve.head{i:1|2}",
}
_VIDEO: Final = "features.{k:0|2|4|6}.{i}", "stage.{k:0|1|2|3}.h.{i}.layer"
VIDEOSWIN: Final = {
    "patch_embed.{m:proj|norm}": "{m:patches|norm}",
    f"{_VIDEO[0]}.norm{{n}}": f"{_VIDEO[1]}.norm{{n}}",
    f"{_VIDEO[0]}.attn": f"{_VIDEO[1]}.attn",
    f"{_VIDEO[0]}.attn.relative_position_bias_table": f"{_VIDEO[1]}.attn.bias.weight",
    f"{_VIDEO[0]}.attn.relative_position_index": None,  # constants
    f"{_VIDEO[0]}.mlp.{{m:0|3}}": f"{_VIDEO[1]}.{{m:fc1|fc2}}",
    "features.{k:1|3|5}.{m:norm|reduction}": "stage.{k:1|2|3}.merge.{m:norm|fc}",
    "norm": "last",
}

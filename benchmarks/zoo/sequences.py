"""Models of the zoo for texts, sounds, series, tables, graphs and fields."""

from __future__ import annotations

from typing import Final

import maps
from entry import CROSS, CROSS_TARGET, Entry, Port

_IDS: Final = ("B", "T")
_FILES: Final = "benchmarks/zoo/models/sequences/"
_BINARY: Final = "bce_with_logits(output, label)"


def _words(vocab: int | str) -> Port:
    return _IDS, "i32", vocab


SEQUENCES: Final = (
    Entry(
        "DCN-v2", "Wang et al. 2020", f"{_FILES}dcn:DCN",
        {"dense": (("B", 13), "f32", 0), "ids": (("B", 26), "i32", "rows")}, {"B": 128, "rows": 500},
        {"B": 4096, "rows": 100_000}, 6, {}, {"label": (("B",), "f32", 2)}, _BINARY, None, "adam", ("rows",),
    ),
    Entry(
        "SASRec", "Kang and McAuley 2018", f"{_FILES}sasrec:SASRec",
        {"ids": _words(3417), "wanted": _words(3417), "other": _words(3417)}, {"B": 8, "T": 50},
        {"B": 128, "T": 200}, 2, {"p": "0"}, {"label": (("B", "T", 2), "f32", 2)}, _BINARY, None, "adam",
    ),
    Entry(
        "Mamba-2, 12 layers", "Dao and Gu 2024", f"{_FILES}mamba2:Mamba2", {"ids": _words("vocab")},
        {"B": 1, "T": 128, "layers": 2, "vocab": 500}, {"B": 8, "T": 1024, "layers": 12, "vocab": 50_288}, 16, {},
        {"target": _words("vocab")}, CROSS_TARGET, None, "adamw", ("T", "layers", "vocab"),
    ),
    Entry(
        "GAT", "Velickovic et al. 2017", f"{_FILES}gat:GAT",
        {"x": (("N", 50), "f32", 0), "source": (("E",), "i32", "N"), "sink": (("E",), "i32", "N")},
        {"N": 300, "E": 5000}, {"N": 4745, "E": 141_000}, 6, {}, {"label": (("N", 121), "f32", 2)}, _BINARY, None,
        "adam",
    ),
    Entry(
        "wav2vec 2.0 base", "Baevski et al. 2020", f"{_FILES}wav2vec2:Wav2Vec2", {"sound": (("B", "N"), "f32", 0)},
        {"B": 1, "N": 8000, "F": 24, "layers": 2}, {"B": 8, "N": 160_000, "F": 499, "layers": 12}, 12, {},
        {"target": (("B", "F"), "i32", 32)}, CROSS_TARGET, maps.WAV2VEC2, "adamw", ("N", "F", "layers"),
    ),
    Entry(
        "T5-base", "Raffel et al. 2019", f"{_FILES}t5:T5",
        {"source": (("B", "S"), "i32", "vocab"), "given": _words("vocab")},
        {"B": 1, "S": 150, "T": 130, "layers": 2, "vocab": 500},
        {"B": 16, "S": 512, "T": 128, "layers": 12, "vocab": 32_128}, 16, {}, {"target": _words("vocab")}, CROSS_TARGET,
        maps.T5, "adamw", ("layers", "vocab"),
    ),
    Entry(
        "Whisper-base", "Radford et al. 2022", f"{_FILES}whisper:Whisper",
        {"sound": (("B", 80, "frames"), "f32", 0), "given": _words("vocab")},
        {"B": 1, "frames": 200, "T": 40, "layers": 2, "vocab": 500},
        {"B": 16, "frames": 3000, "T": 448, "layers": 6, "vocab": 51_865}, 16, {},
        {"target": _words("vocab")}, CROSS_TARGET, maps.WHISPER, "adamw", ("frames", "layers", "vocab"),
    ),
    Entry(
        "PatchTST", "Nie et al. 2022", f"{_FILES}patchtst:PatchTST", {"x": (("B", 336, "n"), "f32", 0)},
        {"B": 2, "n": 7}, {"B": 32, "n": 321}, 8, {}, {"y": (("B", 96, "n"), "f32", 0)}, "mse(output, y)", None, "adam",
        ("n",),
    ),
    Entry(
        "FNO", "Li et al. 2020", f"{_FILES}fno:FNO", {"x": (("B", "n", "n"), "f32", 0)}, {"B": 2, "n": 30},
        {"B": 20, "n": 85}, 3, {}, {"pressure": (("B", "n", "n"), "f32", 0)}, "mse(output, pressure)", None, "adam",
        ("n",),
    ),
    Entry(
        "NeRF", "Mildenhall et al. 2020", f"{_FILES}nerf:NeRF",
        {"origin": (("R", 3), "f32", 0), "toward": (("R", 3), "f32", 0)}, {"R": 32, "samples": 16},
        {"R": 4096, "samples": 64}, 4, {}, {"wanted": (("R", 3), "f32", 0)}, "mse(output, wanted)", None, "adam",
        ("samples",),
    ),
    Entry(
        "TCN", "Bai et al. 2018", f"{_FILES}tcn:TCN", {"x": (("B", 1, "T"), "f32", 0)}, {"B": 2, "T": 200},
        {"B": 64, "T": 784}, 2, {}, {"label": (("B",), "i32", 10)}, CROSS, None, "adam",
    ),
    Entry(
        "Deep Speech 2", "Amodei et al. 2015", f"{_FILES}deepspeech2:DeepSpeech2",
        {"sound": (("B", 1, 161, "N"), "f32", 0)}, {"B": 2, "N": 40, "F": 20, "layers": 2, "hidden": 64},
        {"B": 32, "N": 1000, "F": 500, "layers": 5, "hidden": 800}, 10, {}, {"target": (("B", "F"), "i32", 29)},
        CROSS_TARGET, None, "sgd", ("N", "F", "layers", "hidden"),
    ),
    Entry(
        "DeepSeek-V2 layers", "DeepSeek-AI 2024", f"{_FILES}deepseek:DeepSeek", {"ids": _words("vocab")},
        {"B": 1, "T": 64, "layers": 2, "vocab": 500, "d": 128, "inner": 256, "count": 8, "narrow": 64, "room": 56},
        {"B": 4, "T": 1024, "layers": 3, "vocab": 32_000, "d": 2048, "inner": 10_944, "count": 32, "narrow": 1408,
         "room": 960}, 26, {}, {"target": _words("vocab")}, CROSS_TARGET, None, "adamw",
        ("layers", "vocab", "d", "inner", "count", "narrow", "room"),
    ),
    Entry(
        "Mamba, 12 layers", "Gu and Dao 2023", f"{_FILES}mamba:Mamba", {"ids": _words("vocab")},
        {"B": 1, "T": 128, "layers": 2, "vocab": 500}, {"B": 4, "T": 1024, "layers": 12, "vocab": 50_280}, 50, {},
        {"target": _words("vocab")}, CROSS_TARGET, None, "adamw", ("layers", "vocab"),
    ),
    Entry(
        "RetNet", "Sun et al. 2023", f"{_FILES}retnet:RetNet", {"ids": _words("vocab")},
        {"B": 1, "T": 128, "layers": 2, "d": 768, "vocab": 500},
        {"B": 8, "T": 1024, "layers": 12, "vocab": 32_000}, 16, {}, {"target": _words("vocab")}, CROSS_TARGET, None,
        "adamw", ("layers", "d", "vocab"),
    ),
    Entry(
        "DeBERTa-v3-base", "He et al. 2021", f"{_FILES}deberta:DeBERTa", {"ids": _words("vocab")},
        {"B": 1, "T": 128, "layers": 2, "vocab": 500}, {"B": 16, "T": 512, "layers": 12, "vocab": 128_100}, 24, {},
        {"label": (("B", "T"), "f32", 2)}, _BINARY, None, "adamw", ("layers", "vocab"),
    ),
    Entry(
        "Gemma 2, 4 layers", "Gemma Team 2024", f"{_FILES}gemma2:Gemma2", {"ids": _words("vocab")},
        {"B": 1, "T": 96, "layers": 2, "d": 256, "heads": 4, "kv": 2, "n": 64, "inner": 1024, "near": 32, "vocab": 500},
        {"B": 4, "T": 2048, "layers": 4, "d": 2304, "heads": 8, "kv": 4, "n": 256, "inner": 9216, "near": 1024,
         "vocab": 32_000}, 26, {}, {"target": _words("vocab")}, CROSS_TARGET, None, "adamw",
        ("layers", "d", "heads", "kv", "n", "inner", "near", "vocab"),
    ),
    Entry(
        "Conformer-M", "Gulati et al. 2020", f"{_FILES}conformer:Conformer", {"sound": (("B", "N", 80), "f32", 0)},
        {"B": 2, "N": 200, "F": 49, "layers": 2}, {"B": 16, "N": 1000, "F": 249, "layers": 16}, 10, {},
        {"target": (("B", "F"), "i32", 1024)}, CROSS_TARGET, None, "adamw", ("N", "F", "layers"),
    ),
    Entry(
        "EnCodec", "Defossez et al. 2022", f"{_FILES}encodec:EnCodec", {"sound": (("B", 1, "N"), "f32", 0)},
        {"B": 1, "N": 3200, "wide": 16}, {"B": 16, "N": 24_000, "wide": 32}, 8, {},
        {"wanted": (("B", 1, "N"), "f32", 0)}, "mse(output, wanted)", None, "adam", ("N", "wide"),
    ),
    Entry(
        "TFT", "Lim et al. 2019", f"{_FILES}tft:TFT",
        {"known": (("B", "hours", 4), "f32", 0), "seen": (("B", "past", 1), "f32", 0), "place": (("B",), "i32", 369)},
        {"B": 4, "past": 40, "hours": 64, "d": 160}, {"B": 64, "past": 168, "hours": 192}, 6, {},
        {"y": (("B", 24, 3), "f32", 0)}, "mse(output, y)", None, "adam", ("past", "hours", "d"),
    ),
    Entry(
        "xDeepFM", "Lian et al. 2018", f"{_FILES}xdeepfm:XDeepFM", {"ids": (("B", 39), "i32", "rows")},
        {"B": 64, "rows": 500}, {"B": 4096, "rows": 50_000}, 12, {}, {"label": (("B",), "f32", 2)}, _BINARY, None,
        "adam", ("rows",),
    ),
)  # fmt: skip

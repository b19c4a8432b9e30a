"""Twins of T5, Whisper and wav2vec 2.0: those of transformers."""

from __future__ import annotations

import transformers
from torch import Tensor, nn


class T5(nn.Module):
    def __init__(self, layers: int, vocab: int) -> None:
        super().__init__()
        config = transformers.T5Config(
            vocab_size=vocab,
            d_model=768,
            d_kv=64,
            d_ff=3072,
            num_layers=layers,
            num_heads=12,
            dropout_rate=0.0,
            attn_implementation="sdpa",
        )
        self.inner = transformers.T5ForConditionalGeneration(config)

    def forward(self, source: Tensor, given: Tensor) -> Tensor:
        found: Tensor = self.inner(input_ids=source, decoder_input_ids=given, use_cache=False).logits
        return found


class Whisper(nn.Module):
    def __init__(self, layers: int, vocab: int, frames: int) -> None:
        super().__init__()
        numbers = {"encoder_layers": layers, "decoder_layers": layers, "d_model": 512, "num_mel_bins": 80}
        numbers |= {"encoder_attention_heads": 8, "decoder_attention_heads": 8, "max_source_positions": frames // 2}
        numbers |= dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 2048)
        numbers |= {f"{name}_token_id": 0 for name in ("pad", "bos", "eos", "decoder_start")}
        config = transformers.WhisperConfig(vocab_size=vocab, **numbers)
        self.inner = transformers.WhisperForConditionalGeneration(config)
        self.inner.model.encoder.embed_positions.requires_grad_(True)
        self.inner.model.decoder.embed_tokens.padding_idx = None  # every word has a gradient

    def forward(self, sound: Tensor, given: Tensor) -> Tensor:
        found: Tensor = self.inner(input_features=sound, decoder_input_ids=given, use_cache=False).logits
        return found


class Wav2Vec2(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        kinds = ("hidden", "activation", "attention", "feat_proj")
        none = [
            *(f"{kind}_dropout" for kind in kinds),
            "final_dropout",
            "layerdrop",
            "mask_time_prob",
            "mask_feature_prob",
        ]
        config = transformers.Wav2Vec2Config(num_hidden_layers=layers, **dict.fromkeys(none, 0.0))
        self.inner = transformers.Wav2Vec2ForCTC(config)

    def forward(self, sound: Tensor) -> Tensor:
        found: Tensor = self.inner(input_values=sound).logits
        return found

"""Twins that read texts."""

from __future__ import annotations

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn


class Bert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        config = transformers.BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        self.inner = transformers.BertForMaskedLM(config)

    def forward(self, ids: Tensor, mask: Tensor, segment: Tensor) -> Tensor:
        found: Tensor = self.inner(input_ids=ids, attention_mask=mask, token_type_ids=segment).logits
        return found


class Gpt2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        config = transformers.GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
        self.inner = transformers.GPT2LMHeadModel(config)

    def forward(self, ids: Tensor) -> Tensor:
        found: Tensor = self.inner(input_ids=ids, use_cache=False).logits
        return found


class LlamaAttention(nn.Module):
    def __init__(self, d: int, heads: int, kv: int) -> None:
        super().__init__()
        self.size = d // heads
        self.q, self.o = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.k, self.v = (nn.Linear(d, self.size * kv, bias=False) for _ in range(2))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(2, (-1, self.size)).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k = (_turned(each, cos, sin) for each in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        found: Tensor = self.o(y.transpose(1, 2).flatten(2))
        return found


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class LlamaLayer(nn.Module):
    def __init__(self, d: int, heads: int, kv: int, inner: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(d, 1e-5), nn.RMSNorm(d, 1e-5)
        self.attn = LlamaAttention(d, heads, kv)
        self.gate, self.up = (nn.Linear(d, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, d, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x), cos, sin)
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, d: int = 768, vocab: int = 32_000) -> None:
        super().__init__()
        self.tok, self.norm = nn.Embedding(vocab, d), nn.RMSNorm(d, 1e-5)
        self.h = nn.ModuleList(nn.ModuleDict({"layer": LlamaLayer(d, 12, 4, 2048)}) for _ in range(12))
        self.head = nn.Linear(d, vocab, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x, size = self.tok(ids), self.h[0]["layer"].attn.size
        slope = 10000.0 ** (-2.0 * torch.arange(size // 2, device=x.device) / size)
        angle = torch.arange(ids.shape[1], device=x.device)[:, None] * slope
        for each in self.h:
            x = each["layer"](x, angle.cos(), angle.sin())
        found: Tensor = self.head(self.norm(x))
        return found

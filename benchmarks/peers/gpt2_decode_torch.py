"""GPT-2 124M, batch 1, static cache, bf16: torch compile (reduce-overhead), greedy."""
import time, torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0); D, H, L, V, C = 768, 12, 12, 50257, 1024
class Block(nn.Module):
    def __init__(s):
        super().__init__(); s.l1, s.l2 = nn.LayerNorm(D), nn.LayerNorm(D); s.qkv, s.proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
        s.fc, s.out = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)
        for n in "kv": s.register_buffer(n, torch.zeros(1, H, C, D // H))
    def forward(s, x, at, mask):
        q, k, v = s.qkv(s.l1(x)).view(1, 1, 3, H, D // H).permute(2, 0, 3, 1, 4)
        s.k.index_copy_(2, at, k); s.v.index_copy_(2, at, v)
        y = F.scaled_dot_product_attention(q, s.k, s.v, attn_mask=mask).transpose(1, 2).reshape(1, 1, D)
        x = x + s.proj(y); return x + s.out(F.gelu(s.fc(s.l2(x)), approximate="tanh"))
class GPT(nn.Module):
    def __init__(s):
        super().__init__(); s.tok, s.pos = nn.Embedding(V, D), nn.Embedding(C, D); s.h = nn.ModuleList(Block() for _ in range(L)); s.ln = nn.LayerNorm(D)
    def forward(s, ids, at):
        x = s.tok(ids) + s.pos(at); mask = (torch.arange(C, device=x.device) <= at).view(1, 1, 1, C)
        for b in s.h: x = b(x, at, mask)
        return F.linear(s.ln(x), s.tok.weight).argmax(-1)
with torch.device("cuda"), torch.inference_mode():
    m = GPT().to(torch.bfloat16); f = torch.compile(m, mode="reduce-overhead", fullgraph=True)
    ids = torch.zeros(1, 1, dtype=torch.long)
    for n, g in (("compile reduce-overhead", f),):
        t = time.perf_counter()
        for i in range(8): ids.copy_(g(ids, torch.tensor([i])))
        torch.cuda.synchronize(); cold = time.perf_counter() - t
        places = [torch.tensor([i]) for i in range(256)]; torch.cuda.synchronize(); t = time.perf_counter(); out = []
        for i in range(256): ids.copy_(g(ids, places[i])); out.append(int(ids))
        torch.cuda.synchronize(); d = (time.perf_counter() - t) / 256
        print(f"torch {n}: {1 / d:.0f} tokens/s, {d * 1e6:.1f} us a token, first {cold:.0f} s", flush=True)
        a, b = (torch.cuda.Event(enable_timing=True) for _ in "ab"); a.record()
        for i in range(256): ids.copy_(g(ids, places[i]))
        b.record(); torch.cuda.synchronize(); print(f"torch {n}, without reading the token: {a.elapsed_time(b) / 256 * 1e3:.1f} us a token", flush=True)

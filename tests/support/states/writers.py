"""A small GPT as two models of one file: one reads windows, the other has a cache; and a recurrent model."""

GPT = """nn 1
dim B in 1..8 = 4
dim T in 1..24 = 16
const V = 20
const CONTEXT = 24

block attention(x: [B, T, D], heads: int, at: i32[], cached: bool) -> [B, T, D] {
  q, k, v = x |> linear(3*D) as qkv |> rearrange("B T (three h d) -> three B h T d", three=3, h=heads)
  if cached {
    state keys: [CONTEXT, B, heads, D/heads] = 0
    state values: [CONTEXT, B, heads, D/heads] = 0
    places = at + arange(T)
    keys = index_put(keys, [places], rearrange(k, "B h T d -> T B h d"))
    values = index_put(values, [places], rearrange(v, "B h T d -> T B h d"))
    seen = arange(CONTEXT) <= reshape(places, [T, 1])
    y = sdpa(q, rearrange(keys, "C B h d -> B h C d"), rearrange(values, "C B h d -> B h C d"), mask=seen)
  } else {
    y = sdpa(q, k, v, causal=true)
  }
  return y |> rearrange("B h T d -> B T (h d)") |> linear(D) as proj
}
block body(ids: i32[B, T], d: int, at: i32[], cached: bool) -> [B, T, V] {
  layer tok = embedding(V, d)
  param pos: [CONTEXT, d] = normal(0.3)
  x = tok(ids) + pos[at + arange(T)]
  for i in 0..2 as layer { x = x + (x |> layernorm as ln |> attention(2, at, cached) as attn) }
  return x |> layernorm as ln_f |> linear(V) as head
}
model Reader(ids: i32[B, T], d: int = 8) -> [B, T, V] {
  return body(ids, d, tensor(0), false) as gpt
}
model Writer(ids: i32[B, T], d: int = 8) -> [B, T, V] {
  state at: i32[] = 0
  y = body(ids, d, at, true) as gpt
  at = at + T
  return y
}
"""
RECURRENT = """nn 1
dim B in 1..8 = 2
dim T in 1..8 = 4
model Cell(ids: u8[B, T], d: int = 6) -> (seen: [B, d], logits: [B, 11]) {
  layer mix = linear(d)
  state h: [B, d] = 0
  x = embedding(ids, 11, d) as tok
  for t in 0..4 { h = tanh(x[:, t] + mix(h)) }
  return h, h |> linear(11) as head
}
"""

"""One recurrent layer forward and backward, bf16, in a CUDA graph: B16 T1024 H768."""
import torch, sys
B, T, D = 16, 1024, 768
for name in ("LSTM", "GRU"):
  try:
    m = getattr(torch.nn, name)(D, D).cuda().bfloat16(); m.flatten_parameters(); x = torch.randn(T, B, D, device="cuda", dtype=torch.bfloat16, requires_grad=True); t = torch.randn_like(x)
    def step():
        y, _ = m(x, None); y.backward(t)
    s = torch.cuda.Stream()
    with torch.cuda.stream(s):
        for _ in range(3): step()
    torch.cuda.synchronize(); g = torch.cuda.CUDAGraph()
    for p in (x, *m.parameters()): p.grad = None
    try:
        with torch.cuda.graph(g): step()
        run = g.replay
    except Exception as e: print("no graph:", str(e)[:100]); run = step
    ts = []
    for _ in range(12):
        a, b = (torch.cuda.Event(enable_timing=True) for _ in "ab"); a.record(); run(); b.record(); torch.cuda.synchronize(); ts.append(a.elapsed_time(b))
    print(f"torch {name} (cuDNN) B{B} T{T} H{D} forward + backward: {sorted(ts)[6]:.2f} ms, least {min(ts):.2f}", flush=True)
  except Exception as e: print(name, "failed", str(e)[:300], flush=True)

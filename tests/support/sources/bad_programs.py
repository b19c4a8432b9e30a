"""Programs that do not hold together, each with the codes that it must give, in order."""

HEAD = "nn 1\ndim B in 1..64 = 8\n"
TRAIN = """train Net(label: i32[B]) {
  loss = cross_entropy(output, label)
  optimizer = sgd(lr=0.1)
}
"""


def net(body: str, signature: str = "x: [B, 16]", result: str = " -> [B, 4]", before: str = "", after: str = "") -> str:
    """A file with one model."""
    return f"{HEAD}{before}model Net({signature}){result} {{\n{body}\n}}\n{after}"


RESIDUAL = """block cbr(x: [B, C, H, W], out: int, k: int, s: int = 1, act: bool = true) -> [B, out, H/s, W/s] {
  y = x |> conv(out, k, stride=s, pad=k//2, bias=false) |> batchnorm
  return relu(y) if act else y
}
block bottleneck(x: [B, C, H, W], mid: int, s: int = 1) -> [B, 4*mid, H/s, W/s] {
  y = x |> cbr(mid, 1) as a |> cbr(mid, 3, s) as b |> cbr(4*mid, 1, act=false) as c
  skip = x
  return relu(y + skip)
}
"""

BAD: dict[str, tuple[str, list[str]]] = {
    "step_of_zero": (net("  return (x |> linear(8))[:, 7:0:0]"), ["E0209"]),
    "slice_forwards": (net("  return (x |> linear(8))[:, 0:4:-1]"), ["E0304"]),
    "slice_past_the_end": (net("  return (x |> linear(8))[:, 8:4:-1]"), ["E0304"]),
    "residual_shapes": (
        net(
            "  x = x |> conv(256, 1) as stem\n"
            "  for s in [1, 2] as stage { x = x |> bottleneck(64, s) as unit }\n  return x",
            signature="x: [B, 3, 56, 56]",
            result=" -> [B, 256, 28, 28]",
            before=RESIDUAL,
        ),
        ["E0301"],
    ),
    "unknown_function": (net("  return x |> linear(8) |> batch_norm |> linear(4)"), ["E0101"]),
    "declarations_as_calls": (
        net(
            '  w = param([16, 4])\n  v = param(16, 4, init=uniform(0.1))\n  c = param("c", x.shape)\n'
            "  h, c = state([B, 4]), 2 * buffer([4], init=ones)\n  fc = layer(8)\n  return x @ w"
        ),
        ["E0101"] * 6,
    ),
    "unknown_name": (net("  hidden = x |> linear(8)\n  return hiden |> linear(4)"), ["E0102"]),
    "several_errors": (
        net("  a = x |> linaer(8)\n  b = x |> linear(8, bais=false)\n  c = x |> softmax(axis=2)\n  return a + b + c"),
        ["E0101", "E0201", "E0306"],
    ),
    "poisoned_is_silent": (net("  a = x + wrong\n  b = a + 1\n  c = relu(b)\n  return c |> linear(4)"), ["E0102"]),
    "const_twice": (net("  return x |> linear(4)", before="const K = 3\nconst K = 4\n"), ["E0103"]),
    "label_of_a_call_without_one": (net("  return x |> linear(8) |> linear(4) as linear"), ["E0104"]),
    "label_twice": (net("  return x |> linear(8) as a |> linear(4) as a"), ["E0104"]),
    "block_cycle": (
        net(
            "  return x |> f |> linear(4)",
            before="block f(x: [B, D]) -> [B, D] { return x |> g }\nblock g(x: [B, D]) -> [B, D] { return x |> f }\n",
        ),
        ["E0105"],
    ),
    "unknown_attribute": (net("  @frezze\n  layer l = linear(4)\n  return l(x)"), ["E0109"]),
    "unread_input": (net("  return x |> linear(4)", signature="x: [B, 16], y: [B, 3]"), ["E0110"]),
    "unread_block_input": (
        net(
            "  return f(x, x) |> linear(4)",
            before="block f(x: [B, D], skip: [B, D]) -> [B, D] { return relu(x) }\n",
        ),
        ["E0110"],
    ),
    "misspelt_input_of_train": (
        net("  return x |> linear(4)", after=TRAIN.replace("(output, label)", "(output, labels)")),
        ["E0102"],
    ),
    "two_models": (
        net("  return x |> linear(4)", after="model Other(x: [B, 2]) -> [B, 2] { return relu(x) }\n"),
        ["E0111"],
    ),
    "no_model": (HEAD + "const K = 3\n", ["E0111"]),
    "hides_block": (
        net("  layer tower = linear(4)\n  return tower(x)", before="block tower(x: [N]) -> [N] { return x }\n"),
        ["E0112"],
    ),
    "hides_const": (net("  K = x |> linear(4)\n  return K", before="const K = 3\n"), ["E0112"]),
    "reserved_input": (net("  return step |> linear(4)", signature="step: [B, 16]"), ["E0112"]),
    "reserved_input_of_train": (
        net("  return x |> linear(4)", after=TRAIN.replace("label", "row")),
        ["E0112"],
    ),
    "python_word_input": (net("  return lambda |> linear(4)", signature="lambda: [B, 16]"), ["E0112"]),
    "unknown_section": (net("  return x |> linear(4)", after="trian Net() { loss = mean(output) }\n"), ["E0113"]),
    "precision_field": (net("  return x |> linear(4)", after="precision { compte = f32 }\n"), ["E0113"]),
    "missing_argument": (net("  return x |> linear"), ["E0201"]),
    "blocks_called_like_modules": (
        net(
            "  f = tower()\n  g = wide(8)\n  h = wide(width=2 * 4)\n  y = x + wide(8)\n  layer l = wide(8)\n  z = l()\n"
            "  u = x |> wide\n  return f(g(x))",
            before="block tower(x: [B, D]) -> [B, D] { return x }\n"
            "block wide(x: [B, D], width: int) -> [B, width] { return x |> linear(width) }\n",
        ),
        ["E0201"] * 6,
    ),
    "hashes": (
        net(
            "  a = ids * 2654435761\n  b = bitwise_xor(wide, 3000000000)\n  c = tensor([1, 3266489917])\n"
            "  d = bytes + -1\n  e = ids + 4294967296\n  f = bytes == 256\n  return x |> linear(4)",
            signature="x: [B, 16], ids: i32[B], wide: u32[B], bytes: u8[B]",
        ),
        ["E0209"] * 5,
    ),
    "unknown_argument": (net("  return x |> linear(4, bais=false)"), ["E0201"]),
    "too_many_arguments": (net("  return relu(x, x, x) |> linear(4)"), ["E0201"]),
    "block_argument": (
        net(
            "  return x |> f(2, width=3) |> linear(4)",
            before="block f(x: [B, D], n: int) -> [B, D] { return x * n }\n",
        ),
        ["E0201"],
    ),
    "float_for_int": (net("  return x |> linear(4.5)"), ["E0202"]),
    "float_dtype": (net("  return x |> linear(4)", signature="x: f32[B, 16]"), ["E0202"]),
    "tensor_condition": (net("  y = x if x > 0 else relu(x)\n  return y |> linear(4)"), ["E0202"]),
    "matmul_sizes": (net("  param w: [12, 4] = normal(0.1)\n  return x @ w"), ["E0203"]),
    "rank_of_conv": (net("  return x |> conv(4, 3) |> flatten |> linear(4)"), ["E0203"]),
    "int_and_float": (net("  return x + ids |> linear(4)", signature="x: [B, 16], ids: i32[B, 16]"), ["E0204"]),
    "float_meets_int": (
        net("  return cast(ids * 0.5, \"float\") + x |> linear(4)", signature="x: [B, 16], ids: i32[B, 16]"),
        ["E0204"],
    ),
    "static_tensor": (net("  return x |> linear(sum(x))"), ["E0202"]),
    "dim_times_float": (net("  return x |> linear(B * 0.5)"), ["E0202"]),
    "float_times_dim": (net("  return x |> linear(0.5 * B)"), ["E0202"]),
    "depends_on_dim": (net("  y = x if B == 8 else relu(x)\n  return y |> linear(4)"), ["E0205"]),
    "check_fails": (
        net(
            "  return x |> heads(3) |> linear(4)",
            before="block heads(x: [B, D], n: int) -> [B, D] {\n"
            '  check D % n == 0, "D must divide by n"\n  return x * n\n}\n',
        ),
        ["E0206"],
    ),
    "return_in_for": (net("  for i in 0..3 { return x |> linear(4) }\n  return x |> linear(4)"), ["E0207"]),
    "call_model": (
        "nn 1\nmodel A(x: [4, 8]) -> [4, 8] { return x |> A }\n",
        ["E0105"],
    ),
    "three_names_two_values": (net("  a, b, c = split(x, 2)\n  return a + b + c |> linear(4)"), ["E0208"]),
    "result_count": (net("  return x |> linear(4), x", result=" -> (y: [B, 4])"), ["E0208"]),
    "no_return": (net("  y = x |> linear(4)"), ["E0208"]),
    "negative_dropout": (net("  return x |> dropout(1.5) |> linear(4)"), ["E0209"]),
    "list_index": (net("  sizes = [1, 2]\n  return x |> linear(sizes[2])"), ["E0209"]),
    "lr_attribute": (net('  @lr("slow")\n  layer l = linear(4)\n  return l(x)'), ["E0210"]),
    "broadcast": (net("  return (x + y) |> linear(4)", signature="x: [B, 16], y: [B, 12]"), ["E0301"]),
    "batch_is_not_one": (net("  return (x + y) |> linear(4)", signature="x: [B, 16], y: [1, 12]"), ["E0301"]),
    "result_shape": (net("  return x |> linear(5)"), ["E0302"]),
    "block_dims_differ": (
        net(
            "  return f(x, x |> linear(8) as small) |> linear(4)",
            before="block f(x: [B, D], y: [B, D]) -> [B, D] { return x + y }\n",
        ),
        ["E0302"],
    ),
    "shared_layer_shapes": (
        net("  layer l = linear(16)\n  return l(l(x)) + l(x |> linear(3)) |> linear(4)"),
        ["E0302"],
    ),
    "does_not_divide": (
        net(
            "  return x |> half |> linear(4)",
            signature="x: [B, 15]",
            before="block half(x: [B, D]) -> [B, D/2] { return x |> linear(D//2) }\n",
        ),
        ["E0303"],
    ),
    "dim_default": ("nn 1\ndim B in 1..64 = 128\nmodel Net(x: [B, 2]) -> [B, 2] { return relu(x) }\n", ["E0304"]),
    "slice_range": (net("  return x[:, 0:20] |> linear(4)"), ["E0304"]),
    "huge_tensor": (net("  y = x |> linear(4_000_000_000)\n  return y |> linear(4_000_000_000)", result=""), ["E0305"]),
    "axis": (net("  return x |> softmax(axis=5) |> linear(4)"), ["E0306"]),
    "undeclared_dim": ("nn 1\nmodel Net(x: [N, 2]) -> [N, 2] { return relu(x) }\n", ["E0307"]),
    "file_dim_in_block": (
        net("  return x |> f |> linear(4)", before="block f(x: [N, D]) -> [N, D] { return x * B }\n"),
        ["E0102"],
    ),
    "param_with_dim": (net("  param w: [B, 16] = zeros\n  return x + w |> linear(4)"), ["E0307"]),
    "result_dim": (
        net("  return x |> f |> linear(4)", before="block f(x: [B, D]) -> [B, N] { return x |> linear(4) }\n"),
        ["E0307"],
    ),
    "empty_window": (
        net("  return x |> conv(4, 7) |> flatten |> linear(4)", signature="x: [B, 1, 5, 5]"),
        ["E0308"],
    ),
    "budget_unit": (net("  return x |> linear(4)", after="budget { memory = 3 }\n"), ["E0401"]),
    "no_loss": (net("  return x |> linear(4)", after="train Net() { optimizer = sgd(lr=0.1) }\n"), ["E0501"]),
    "loss_shape": (
        net("  return x |> linear(4)", after="train Net() {\n  loss = output\n  optimizer = sgd(lr=0.1)\n}\n"),
        ["E0502"],
    ),
    "no_optimizer": (net("  return x |> linear(4)", after="train Net() { loss = mean(output) }\n"), ["E0503"]),
    "unknown_optimizer": (
        net("  return x |> linear(4)", after="train Net() {\n  loss = mean(output)\n  optimizer = sdg(lr=0.1)\n}\n"),
        ["E0101"],
    ),
    "metric_shape": (
        net(
            "  return x |> linear(4)",
            after="train Net() {\n  loss = mean(output)\n  metrics { m = output }\n  optimizer = sgd(lr=0.1)\n}\n",
        ),
        ["E0504"],
    ),
    "metric_named_like_a_field_of_the_log": (
        net(
            "  return x |> linear(4)",
            after="train Net() {\n  loss = mean(output)\n  metrics { step = mean(output); loss = mean(output) }\n"
            "  optimizer = sgd(lr=0.1)\n}\n",
        ),
        ["E0112", "E0112"],
    ),
    "ema_of_one": (net("  return x |> linear(4)", after=TRAIN.replace("}", "  ema = 1.0\n}")), ["E0209"]),
    **{
        f"average_{name}": (net(f"  layer a = linear(4)\n  {rest}\n  return a(x) + b(x)"), ["E0210"])
        for name, rest in {
            "before_a_param": "@ema(a, 0.9) param w: [4] = zeros\n  layer b = linear(4)",
            "without_a_decay": "@ema(a) layer b = linear(4)",
            "of_no_layer": "@ema(x, 0.9) layer b = linear(4)",
            "with_a_decay_of_1": "@ema(a, 1) layer b = linear(4)",
            "of_other_parameters": "@ema(a, 0.9) layer b = linear(4, bias=false)\n  layer c = linear(4, bias=false)\n"
            "  @ema(c, 0.9) layer d = linear(4)\n  x = x + sum(c(x) + d(x))",
            "of_other_shapes": "@ema(a, 0.9) layer b = linear(1)",
            "of_an_average": "@ema(a, 0.9) layer b = linear(4)\n"
            "  @ema(b, 0.9) layer c = linear(4)\n  x = x + sum(c(x))",
        }.items()
    },
    "ema_of_a_tensor": (net("  return x |> linear(4)", after=TRAIN.replace("}", "  ema = mean(output)\n}")), ["E0202"]),
    "ema_twice": (net("  return x |> linear(4)", after=TRAIN.replace("}", "  ema = 0.9; ema = 0.9\n}")), ["E0103"]),
    "a_number_of_each_step": (
        net(
            "  return x |> linear(4)",
            after="train Net(label: i32[B], s: float = 0.1) {\n"
            "  loss      = cross_entropy(output, label, smoothing=s)\n  optimizer = adam(lr=s)\n}\n",
        ),
        ["E0205", "E0202"],
    ),
    "accumulate_none": (net("  return x |> linear(4)", after=TRAIN.replace("}", "  accumulate = 0\n}")), ["E0209"]),
    "accumulate_half": (net("  return x |> linear(4)", after=TRAIN.replace("}", "  accumulate = 0.5\n}")), ["E0202"]),
    "accumulate_misspelled": (
        net("  return x |> linear(4)", after=TRAIN.replace("}", "  acumulate = 4\n}")),
        ["E0113"],
    ),
    "accumulate_over_pairs": (
        net(
            "  return near @ x |> linear(4)",
            "x: [B, 16], near: [B, B]",
            after=TRAIN.replace("}", "  accumulate = 4\n}"),
        ),
        ["E0509"],
    ),
    "accumulate_without_rows": (
        net(
            "  return x |> linear(4)",
            "x: [8, 16]",
            " -> [8, 4]",
            after="train Net() {\n  loss = mean(output)\n  optimizer = sgd(lr=0.1)\n  accumulate = 2\n}\n",
        ),
        ["E0509"],
    ),
    "shards_without_rows": (
        net(
            "  return x |> linear(4)",
            "x: [8, 16]",
            " -> [8, 4]",
            after="train Net() {\n  loss = mean(output)\n  optimizer = sgd(lr=0.1)\n}\nmesh { shards = 2 }\n",
        ),
        ["E0509"],
    ),
    "three_shards": (net("  return x |> linear(4)", after=TRAIN + "mesh { shards = 3 }\n"), ["E0209"]),
    "mesh_of_parts": (net("  return x |> linear(4)", after=TRAIN + "mesh { parts = 2 }\n"), ["E0113"]),
    "shards_twice": (net("  return x |> linear(4)", after=TRAIN + "mesh { shards = 2; shards = 2 }\n"), ["E0103"]),
    "train_of_nothing": (net("  return x |> linear(4)", after=TRAIN.replace("train Net", "train Nett")), ["E0508"]),
    "precision_type": (net("  return x |> linear(4)", after="precision { compute = f7 }\n"), ["E0601"]),
    "state_that_draws": (net("  state h: [B, 4] = normal(0.1)\n  return (x |> linear(4)) + h"), ["E0202"]),
    "state_of_a_fraction": (net("  state n: i32[] = 0.5\n  n = n + 1\n  return x |> linear(4)"), ["E0202"]),
    "state_below_its_dtype": (net("  state n: u8[] = -1\n  n = n + 1\n  return x |> linear(4)"), ["E0202"]),
    "state_of_another_shape": (
        net("  state h: [B, 8] = 0\n  h = x |> linear(4)\n  return h"),
        ["E0302"],
    ),
    "state_of_another_dtype": (net("  state n: i32[B] = 0\n  n = sum(x, over=1)\n  return x |> linear(4)"), ["E0204"]),
    "state_of_a_number": (net("  state h: [B, 4] = 0\n  h = 1\n  return x |> linear(4)"), ["E0202"]),
    "state_as_a_loop_variable": (
        net("  state h: [B, 4] = 0\n  for h in 0..2 { x = x + 1 }\n  return x |> linear(4)"),
        ["E0202"],
    ),
    "state_at_a_tensor": (
        net("  state h: [B, 4] = 0\n  h[argmax(x)] = h\n  return (x |> linear(4)) + h"),
        ["E0202"],
    ),
    "state_at_every_second": (
        net("  state h: [B, 4] = 0\n  h[:, ::2] = (x |> linear(2))\n  return x |> linear(4)"),
        ["E0202"],
    ),
    "state_past_its_end": (
        net("  state h: [2, B, 4] = 0\n  h[2] = (x |> linear(4))\n  return x |> linear(4)"),
        ["E0304"],
    ),
    "state_part_of_another_shape": (
        net("  state h: [2, B, 4] = 0\n  h[1] = (x |> linear(3))\n  return x |> linear(4)"),
        ["E0302"],
    ),
    "state_twice": (
        net("  state h: [B, 4] = 0\n  state h: [B, 4] = 0\n  return (x |> linear(4)) + h"),
        ["E0104"],
    ),
    "state_of_a_layer_with_other_shapes": (
        net(
            "  layer c = cell()\n  return concat([c(x), c(x[:, :8])])[:, :4]",
            before="block cell(x: [B, D]) -> [B, D] {\n  state h: [B, D] = 0\n  h = h + x\n  return h\n}\n",
        ),
        ["E0302"],
    ),
    "accumulate_with_a_state": (
        net(
            "  state h: [B, 4] = 0\n  h = h + (x |> linear(4))\n  return h",
            after=TRAIN.replace("}", "  accumulate = 4\n}"),
        ),
        ["E0509"],
    ),
    "scan": (
        net(
            "  h = x\n  scan t in x along 0 carry h into y { h = t; yield h }\n  return h |> linear(4)",
        ),
        ["E0302"],
    ),
    "too_many_rounds": (net("  for i in 0..2_000_000 { x = relu(x) }\n  return x |> linear(4)"), ["E0006"]),
    "doubling": (
        net(
            "  return x |> b24 |> linear(4)",
            before="block b0(x: [B, D]) -> [B, D] { return relu(x) }\n"
            + "".join(
                f"block b{i}(x: [B, D]) -> [B, D] {{ return x |> b{i - 1} |> b{i - 1} }}\n" for i in range(1, 25)
            ),
        ),
        ["E0006"],
    ),
    "int_overflow": (net("  return x |> linear(9^9^9)"), ["E0005"]),
    "division_by_zero": (net("  return x |> linear(4 // 0)"), ["E0209"]),
    "unit_in_expression": (net("  return x |> linear(4 GiB)"), ["E0202"]),
    "attribute_of_const": (net("  return x |> linear(4)", before="@lr(0.1)\nconst K = 3\n"), ["E0210"]),
    "attribute_of_check": (net('  @freeze\n  check true, "fine"\n  return x |> linear(4)'), ["E0210"]),
    "attribute_of_section": (
        net("  return x |> linear(4)", after="@lr(0.1)\nprecision { compute = f32 }\n"),
        ["E0210"],
    ),
    "after_return": (net("  return x |> linear(4)\n  y = x + 1\n  return y"), ["E0207"]),
    "after_both_returns": (
        net("  if true { return x |> linear(4) } else { return x |> linear(4) }\n  y = x + 1"),
        ["E0207"],
    ),
    "unknown_function_in_uncalled_block": (
        net("  return x |> linear(4)", before="block spare(x: [N, D]) -> [N, D] { return x |> rleu |> scale(y) }\n"),
        ["E0101", "E0101", "E0102"],
    ),
    "label_read_as_a_value": (
        net(
            "  y = x |> linear(4) as fc |> relu |> linear(4) as head\n  return f(fc + y)",
            before="block f(x: [B, D]) -> [B, D] {\n  y = x |> linear(8) as gate\n  return y * gate\n}\n",
        ),
        ["E0102", "E0102"],
    ),
    "layer_returned": (net("  layer fc = linear(4)\n  y = fc(x)\n  return fc"), ["E0202"]),
    "flatten_missing": (
        net("  return x |> conv(4, 3) |> relu |> linear(4)", signature="x: [B, 3, 8, 8]"),
        ["E0302"],
    ),
    "float_ids": (net("  return x |> embedding(10, 4)", signature="x: [B]"), ["E0203"]),
    "dim_past_an_axis": (
        net("  param queue: [32, 16] = normal(1)\n  return x @ queue[B:].T", result=" -> [B, _]"),
        ["E0304"],
    ),
    "unknown_name_in_untaken_branch": (
        net("  if false { x = x * factor }\n  return x |> linear(4)"),
        ["E0102"],
    ),
    "argument_twice": (net("  return x |> linear(4)", signature="x: [B, 16], x: [B, 3]"), ["E0103"]),
    "result_twice": (net("  return x |> linear(4), x", result=" -> (y: [B, 4], y: [B, 16])"), ["E0103"]),
    "loss_twice": (
        net("  return x |> linear(4)", after=TRAIN.replace("  loss", "  loss = mean(output)\n  loss")),
        ["E0103"],
    ),
    "optimizer_twice": (
        net("  return x |> linear(4)", after=TRAIN.replace("  optimizer", "  optimizer = adam(lr=0.1)\n  optimizer")),
        ["E0103"],
    ),
    "budget_twice": (net("  return x |> linear(4)", after="budget { memory = 3 GiB; memory = 4 GiB }\n"), ["E0103"]),
    "negative_size": (net("  return x", signature="x: [B, 2 - 5]", result=""), ["E0304"]),
    "huge_input": (
        net("  return x[0:1, 0:1]", signature="x: [8_589_934_592, 8_589_934_592]", result=" -> [1, 1]"),
        ["E0305"],
    ),
    "size_of_many_terms": (
        net(
            "  n = A + B + C + D\n" + "  n = n * n\n" * 8 + "  return x * n",
            before="".join(f"dim {c} in 1..9 = 2\n" for c in "ACD"),
        ),
        ["E0304"],
    ),
    "size_of_nested_divisions": (net("  n = B\n" + "  n = (n*n + 1) // 3\n" * 30 + "  return x * n"), ["E0304"]),
    "size_of_many_digits": (net("  n = B\n" + "  n = n * 1_000_000_007\n" * 9 + "  return x * n"), ["E0304"]),
    "doubled_list": (
        net(
            "  return x |> linear(4)",
            before="const k0 = [1]\n" + "".join(f"const k{i} = k{i - 1} + k{i - 1}\n" for i in range(1, 60)),
        ),
        ["E0006"],
    ),
    "compared_lists_of_lists": (
        net(
            "  return x |> linear(4)",
            before="".join(
                f"const {c}0 = 1\n" + "".join(f"const {c}{i} = [{c}{i - 1}, {c}{i - 1}]\n" for i in range(1, 40))
                for c in "ab"
            )
            + "const same = a39 == b39\n",
        ),
        ["E0006"],
    ),
    "empty_rounds": (
        net("  for i in 0..1000 { for j in 0..1000 { for k in 0..2 { } } }\n  return x |> linear(4)"),
        ["E0006"],
    ),
    "input_of_many_terms": (
        net(
            "  return x",
            signature="x: [" + " * ".join(["(B + C + D)"] * 40) + "]",
            before="dim C in 1..9 = 2\ndim D in 1..9 = 2\n",
        ),
        ["E0304"],
    ),
    "unknown_name_in_many_rounds": (
        net(
            "  return x |> idle(200) |> linear(4)",
            before="block idle(x: [B, D], n: int) -> [B, D] {\n"
            "  for i in 0..n { for j in 0..n { k = i + jj; l = rleu(i) } }\n  return x\n}\n",
        ),
        ["E0102", "E0101"],
    ),
    "rounds_by_argument": (
        net(
            "  return x |> idle(1000) |> linear(4)",
            before="block idle(x: [B, D], n: int) -> [B, D] {\n"
            "  for i in 0..n { for j in 0..n { k = i + j } }\n  return x\n}\n",
        ),
        ["E0006"],
    ),
    "layer_before_call": (net("  layer l = linear(4)\n  w = l.weight\n  return l(x) @ w"), ["E0102"]),
}  # fmt: skip
BAD["too_many_floats"] = (
    net(
        "  return x |> linear(4) as fc",
        after=f"train Net(label: i32[B], {', '.join(f'w{i}: float = 1' for i in range(29))}) {{\n"
        "  loss = cross_entropy(output, label)\n  optimizer = sgd(lr=0.1)\n}\n",
    ),
    ["E0209"],
)
_EPOCH = "train Net(label: i32[B]{more}) {{\n  loss = cross_entropy(output, label)\n  metrics epoch {{ {metric} }}\n"
_EPOCH += "  optimizer = sgd(lr=0.1)\n{end}}}\n"
BAD["epoch_metrics_with_their_number_of_steps"] = (
    net("  return x |> linear(4) as fc",
        after=_EPOCH.format(more=", epoch_steps: float = 1", metric="a = mean(output)", end="")),
    ["E0103"],
)  # fmt: skip
BAD["epoch_metrics_of_shards"] = (
    net("  return x |> linear(4) as fc", after=_EPOCH.format(more="", metric="a = mean(output)", end="")
        + "mesh { shards = 2 }\n"),
    ["E0509"],
)  # fmt: skip
BAD["epoch_metrics_of_open_sizes"] = (
    "nn 1\ndim B in 1..64 = 8\ndim T in 1..9 = 4\n"
    "model Net(x: [B, T]) -> [B, T] {\n  param w: [1] = ones\n  return x * w\n}\n"
    "train Net() {\n  loss = mean(output)\n  metrics epoch { a = max(sum(output, over=0)) }\n"
    "  optimizer = sgd(lr=0.1)\n}\n",
    ["E0504"],
)
BAD["metrics_of_another_kind"] = (
    net("  return x |> linear(4) as fc",
        after=_EPOCH.format(more="", metric="a = mean(output)", end="").replace("metrics epoch", "metrics run")),
    ["E0113"],
)  # fmt: skip
BAD["gradient_of_something_else"] = (
    net("  y = x |> linear(4) as fc\n  return y + sum(gradient(y, x * 1)) + sum(gradient(stop_gradient(y), x))"),
    ["E0511", "E0511"],
)
BAD["gradient_of_integers"] = (
    net('  y = x |> linear(4) as fc\n  return y + sum(gradient(y, cast(x, "i32")))'),
    ["E0204"],
)
BAD["no_parameter_reached"] = (
    net(
        "  return x |> linear(4) as fc",
        after="train Net(label: i32[B]) {\n  loss = 1 - accuracy(output, label)\n  optimizer = sgd(lr=0.1)\n}\n",
    ),
    ["E0506"],
)
BAD["no_parameter_at_all"] = (
    net(
        "  return x[:, 0:4]",
        after="train Net(label: i32[B]) {\n  loss = cross_entropy(output, label)\n  optimizer = sgd(lr=0.1)\n}\n",
    ),
    ["E0505"],
)
BAD["element_of_a_tensor"] = (net("  y = x |> linear(4)\n  y[0] = 3\n  return y"), ["E0207"])

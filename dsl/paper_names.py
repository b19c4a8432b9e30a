"""What to write here for functions that papers and their code use; keys as in other_names.py.

A test compiles the code of each help, in a model whose inputs it lists.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_ADD: Final = "write `scatter_add(zeros([4, 8]), ids, x, axis=0)`"
_GRAPH: Final = (
    "read the ends of edges by `m = x[source]`, and add them up: `scatter_add(zeros([4, 8]), target, m, axis=0)`"
)
_PAIRS: Final = "write `cross_entropy(x @ transpose(y) / 0.1, arange(B))` of rows of length 1"
_RADIUS: Final = "the number of pairs would depend on the data: write `near = cdist(x, x) < 1`, a mask"
_WINDOW: Final = 'write its formula, such as `0.5 - 0.5 * cos(2 * pi * arange(512, dtype="float") / 512)`'
_DRAWS: Final = "there are `rand([B, 8])`, `randn([B, 8])` and `bernoulli(p)`; give other draws as an input"
_TURN: Final = "write `u, v = split(x, 2)`, then `concat([u * cos(a) - v * sin(a), u * sin(a) + v * cos(a)])`"
_LOOP: Final = "write `for i in 0..n`, or a loop at run time: `scan xt in x along 1 carry h into y { ... }`"
_ORDER: Final = (
    "write `ends, _ = sort(x)`, or `max(where(tri(8), unsqueeze(x, 1), -inf), over=2)` of all elements so far"
)
_TRIANGLE: Final = "write `tri(8)` as a mask; lists of indices are `tensor([i for i in 0..8 for j in 0..i])` and so on"
_DISTANT: Final = "write a `scan` that carries the least distances so far, and takes their `argmax(d, axis=1)`"
_SCHEDULE: Final = "it belongs to dslc.yaml: `train: {lr: {cosine: {warmup: 1 epoch}}}`"
_MIX: Final = "it belongs to dslc.yaml, data.augment and data.mix: docs/data.md"
_RULE: Final = 'write its rule in a block: docs/cookbook.md, "An optimizer of your own"'

#: Published optimizers that dslc lacks.
RULES: Final = frozenset({
    "adabelief", "adabound", "adamini", "adammini", "adan", "adashift", "ademamix", "adopt", "apollo", "cautiousadamw",
    "dadaptadam", "dadaptation", "distributedshampoo", "galore", "hessianfree", "kfac", "laprop", "lookahead",
    "madgrad", "mars", "novograd", "pcgrad", "prodigy", "qhadam", "ranger", "schedulefree", "adamwschedulefree",
    "sgdschedulefree", "shampoo", "soap", "sophia", "sophiag", "swats", "tiger", "yogi",
})  # fmt: skip

NAMES: Final[Mapping[str, str]] = {
    # activations and normalisations
    **dict.fromkeys(("quickgelu",), "write `x * sigmoid(1.702 * x)`"),
    **dict.fromkeys(("gelunew", "gelutanh", "gelufast"), 'write `gelu(x, approximate="tanh")`'),
    **dict.fromkeys(("squareplus",), "write `(x + sqrt(x^2 + 4)) / 2`"),
    **dict.fromkeys(("crelu",), "write `concat([relu(x), relu(-x)], axis=1)`"),
    **dict.fromkeys(("maxout",), "write `max(reshape(x, [B, 4, 2]), over=2)`"),
    **dict.fromkeys(("reglu",), "write `u, v = split(x, 2)`, then `u * relu(v)`"),
    **dict.fromkeys(("sparsemax",),
                    "write `u, _ = sort(x, descending=true)` and `c = (cumsum(u) - 1) / arange(1, 9, dtype=\"float\")`"
                    ", then `relu(x - max(c, over=1, keep=true))`"),
    **dict.fromkeys(("l2norm", "l2normalize"), "write `x / maximum(norm(x, over=1, keep=true), 1e-12)`"),
    **dict.fromkeys(("maskedsoftmax",), "write `softmax(where(mask, x, -inf))`"),
    **dict.fromkeys(("dropblock", "dropblock2d"),
                    'write `keep = -maxpool(-cast(dropout(ones([B, 1, 6, 6]), 0.05) > 0, "float"), 3, stride=1, pad=1)`'
                    ", then `image * keep / mean(keep)`"),
    **dict.fromkeys(("rope", "rotary", "rotaryembedding", "applyrotaryposemb"), _TURN),
    # losses
    **dict.fromkeys(("infonce", "ntxent", "ntxentloss", "contrastiveloss", "cliploss"), _PAIRS),
    **dict.fromkeys(("quantileloss", "pinball", "pinballloss"), "write `mean(maximum(0.9 * (t - x), -0.1 * (t - x)))`"),
    **dict.fromkeys(("charbonnier", "charbonnierloss"), "write `mean(sqrt((x - t)^2 + 1e-6))`"),
    **dict.fromkeys(("logcosh", "logcoshloss"), "write `mean(x - t + softplus(-2 * (x - t)) - log(2))`"),
    **dict.fromkeys(("psnr",), "write `-10 * log10(mse(x, t))`"),
    **dict.fromkeys(("jaccard", "jaccardloss", "softiou"), "write `1 - sum(p * t) / sum(p + t - p * t)`"),
    **dict.fromkeys(("entropy",), "write `-sum(p * log(maximum(p, 1e-30)), over=1)`"),
    **dict.fromkeys(("sinkhorn",),
                    "repeat `x = x - logsumexp(x, over=1, keep=true)` and `x = x - logsumexp(x, over=0, keep=true)`"),
    **dict.fromkeys(("labelsmoothing", "labelsmoothingcrossentropy"), "write `cross_entropy(x, ids, smoothing=0.1)`"),
    **dict.fromkeys(("iou", "giou", "ciou", "diou", "boxconvert"),
                    "write it with `minimum(a, b)` and `maximum(a, b)` of the corners, such as `relu(a - b)`"),
    # graphs and sets
    **dict.fromkeys(("globaladdpool", "scattersum", "segmentsum", "unsortedsegmentsum"), _ADD),
    **dict.fromkeys(("globalmeanpool", "scattermean", "segmentmean"), f"{_ADD}, divided by that of ones"),
    **dict.fromkeys(("scattermax", "segmentmax", "unsortedsegmentmax"),
                    'write `scatter(full([4, 8], -inf), ids, x, axis=0, mode="max")`'),
    **dict.fromkeys(("scattersoftmax", "segmentsoftmax"),
                    'write `top = scatter(full([4, 8], -inf), ids, x, axis=0, mode="max")` and `e = exp(x - top[ids])`'
                    ", then `e / scatter_add(zeros([4, 8]), ids, e, axis=0)[ids]`"),
    **dict.fromkeys(("messagepassing", "gcnconv", "gatconv", "ginconv", "sageconv", "edgeconv"), _GRAPH),
    **dict.fromkeys(("knn", "knngraph"), "write `near, ids = topk(-cdist(points, points), 4)`"),
    **dict.fromkeys(("radius", "radiusgraph", "ballquery"), _RADIUS),
    **dict.fromkeys(("fps", "farthestpointsampling", "farthestpointsample"), _DISTANT),
    # tensors
    **dict.fromkeys(("cummax", "cummin"), _ORDER),
    **dict.fromkeys(("trilindices", "triuindices", "combinations"), _TRIANGLE),
    **dict.fromkeys(("vander",), 'write `unsqueeze(x, -1) ^ arange(4, dtype="float")`'),
    **dict.fromkeys(("rot90",), "write `flip(transpose(image, [0, 1, 3, 2]), over=3)`"),
    **dict.fromkeys(("stdmean", "varmean"), "write `var(x, over=1)` and `mean(x, over=1)`"),
    **dict.fromkeys(("matrixpower",), "write `square @ square` and so on"),
    **dict.fromkeys(("dstack", "columnstack"), "write `stack([x, y], axis=2)` or `concat([x, y], axis=1)`"),
    **dict.fromkeys(("putalongaxis", "indexfill", "selectscatter", "slicescatter"),
                    "write `scatter(x, gone, y[:, :2], axis=1)`, or `where(mask, y, x)`"),
    **dict.fromkeys(("fft2", "ifft2", "fftn", "ifftn", "rfft2", "irfft2"),
                    "transform one axis after the other: `re, im = dft(image, axis=3)`, then `dft(re, im, axis=2)`"),
    **dict.fromkeys(("fftshift", "ifftshift"), "write `roll(x, 4)`, half of the size"),
    **dict.fromkeys(("dct", "idct"),
                    "write `w = arange(8, dtype=\"float\")`, then `x @ cos(pi / 8 * unsqueeze(w + 0.5, 1) * w)`"),
    **dict.fromkeys(("hannwindow", "hammingwindow", "blackmanwindow"), _WINDOW),
    **dict.fromkeys(("polar",), "a complex tensor is two tensors here: `x * cos(y)` and `x * sin(y)`"),
    **dict.fromkeys(("convolve", "correlate"), "write `conv(image, weight=w, pad=1)`"),
    # random numbers, loops, derivatives
    **dict.fromkeys(("randint",), 'write `cast(floor(10 * rand([B])), "i32")`'),
    **dict.fromkeys(("randperm", "shuffle"), "write `argsort(rand([8]))`"),
    **dict.fromkeys(("exponential",), "write `-log(1 - rand([B, 8]))`"),
    **dict.fromkeys(("lognormal",), "write `exp(randn([B, 8]))`"),
    **dict.fromkeys(("poisson", "gamma", "beta", "dirichlet", "laplace", "cauchy"), _DRAWS),
    **dict.fromkeys(("whileloop", "foriloop", "laxscan", "associativescan"), _LOOP),
    **dict.fromkeys(("cond",), "write `where(mask, x, y)`; `if` and `else` take what is known at build time"),
    **dict.fromkeys(("vmap",), "leave it out: functions take leading axes, and rows of a batch are independent"),
    **dict.fromkeys(("jacobian", "jacrev", "hessian"),
                    "write `h = tanh(x)`, then `stack([gradient(h[:, i], x) for i in 0..8], axis=1)`"),
    **dict.fromkeys(("vjp",), "write `h = tanh(x)`, then `gradient(h * y, x)`"),
    **dict.fromkeys(("jvp",), "write `h = tanh(x)`, `u = zeros([B, 8])`, then `gradient(gradient(h * u, x) * y, u)`"),
    # training
    **dict.fromkeys(sorted(RULES), _RULE),
    **dict.fromkeys(("adaptivelogsoftmax",), "write `cross_entropy(x, ids)` of all classes"),
    **dict.fromkeys(("clipgradnorm", "clipgradvalue"), "write `clip_norm=1.0` or `clip_value=1.0` in the optimizer"),
    **dict.fromkeys(("swa", "polyak", "averagedmodel"), "write `ema = 0.999` in the train section"),
    **dict.fromkeys(("lrscheduler", "warmup", "cosineannealinglr", "onecyclelr", "lambdalr", "steplr"), _SCHEDULE),
    **dict.fromkeys(("mixup", "cutmix", "randomcrop", "randomhorizontalflip"), _MIX),
}  # fmt: skip

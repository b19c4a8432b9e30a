"""What to write here for the names of other frameworks: functions, arguments, words, targets.

The keys are in lower case without underscores, as ``_key`` makes them. A test reads each help: the names in it exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from dslc.dsl.diagnostics import did_you_mean
from dslc.dsl.paper_names import NAMES as OF_PAPERS
from dslc.dsl.pytorch_names import NAMES

_ATTENTION: Final = "write `sdpa(q, k, v)`, with q, k and v from `linear`; `dslc ops sdpa` shows its mask and scale"
_LOOP: Final = "write its gates with `linear`, `sigmoid` and `tanh` in a block, and call it for each step in a `scan`"
_OPTIMIZER: Final = "an optimizer belongs to the train section: `optimizer = adamw(lr=0.001)`"
_RESHAPE: Final = 'write `reshape(x, [...])`, or `rearrange(x, "b h d -> b (h d)")`'

FUNCTIONS: Final[Mapping[str, str]] = {
    **NAMES,
    **OF_PAPERS,
    **dict.fromkeys(("attention", "selfattention", "multiheadattention", "mha", "scaleddotproductattention",
                     "dotproductattention", "flashattention", "crossattention"), _ATTENTION),
    **dict.fromkeys(("lstmcell", "grucell", "rnncell"), _LOOP),
    **dict.fromkeys(("lbfgs", "asgd", "sparseadam"), _OPTIMIZER),
    **dict.fromkeys(("view", "viewas", "reshapeas", "unflatten"), _RESHAPE),
    **dict.fromkeys(("expand", "expandas", "broadcast"),
                    "write `broadcast_to(x, [B, -1])`; operators broadcast anyway"),
    **dict.fromkeys(("repeat",), "write `tile(x, [1, 2])`, or `repeat_interleave(x, 2)`"),
    **dict.fromkeys(("maskedfill",), "write `where(mask, value, x)`"),
    **dict.fromkeys(("indexselect", "take"), "write `x[:, ids]`, or `gather(x, ids, axis=1)` for indices like `x`"),
    **dict.fromkeys(("takealongaxis", "takealongdim"), "write `gather(x, ids, axis=1)`"),
    **dict.fromkeys(("zeroslike", "oneslike", "fulllike", "emptylike", "empty"),
                    "write `zeros([B, 8])` or `ones([B, 8])` with the sizes of `x`"),
    **dict.fromkeys(("zip",), "write `for i in 0..n { ... }` with `a[i]` and `b[i]`"),
    **dict.fromkeys(("enumerate",), "write `for i in 0..n { ... }` with `values[i]`"),
    **dict.fromkeys(("acc", "top1", "top5"), "write `accuracy(logits, target)`, with `top=5` for the five best"),
    **dict.fromkeys(("range",), "write `for i in 0..n`, or `arange(n)` for a tensor"),
    **dict.fromkeys(("expanddims",), "write `unsqueeze(x, 1)`"),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution", "separableconv2d"),
                    "write `conv(x, out, k)`: its rank is that of the input, whose channels it finds"),
    **dict.fromkeys(("convtranspose1d", "convtranspose2d", "convtranspose3d", "deconv", "conv2dtranspose"),
                    "write `conv_transpose(x, out, k)`"),
    **dict.fromkeys(("batchnorm1d", "batchnorm2d", "batchnorm3d", "batchnormalization", "bn"), "write `batchnorm(x)`"),
    **dict.fromkeys(("layernormalization", "ln"), "write `layernorm(x)`"),
    **dict.fromkeys(("groupnormalization", "gn"), "write `groupnorm(x, groups)`"),
    **dict.fromkeys(("instancenorm1d", "instancenorm2d", "instancenorm3d"), "write `instancenorm(x)`"),
    **dict.fromkeys(("dense", "fullyconnected", "fc", "affine", "lazylinear"), "write `linear(x, out)`"),
    **dict.fromkeys(("maxpool1d", "maxpool2d", "maxpool3d", "maxpooling2d"), "write `maxpool(x, k)`"),
    **dict.fromkeys(("maxunpool1d", "maxunpool2d", "maxunpool3d"), "write `maxunpool(x, places, k)`"),
    **dict.fromkeys(("ctcloss",), "write `ctc(log_probs, targets, input_lengths, target_lengths)`, the batch first"),
    **dict.fromkeys(("fft", "ifft"), "write `dft(re, im)`, with `inverse=true` for the inverse"),
    **dict.fromkeys(("rfft", "irfft"), "write `dft(x, onesided=true)`, or `dft(re, im, inverse=true, onesided=true)`"),
    **dict.fromkeys(("im2col",), "write `unfold(x, k)`"),
    **dict.fromkeys(("col2im",), "write `fold(x, size, k)`"),
    **dict.fromkeys(("avgpool1d", "avgpool2d", "avgpool3d", "averagepool", "averagepooling2d"),
                    "write `avgpool(x, k)`"),
    **dict.fromkeys(("adaptiveavgpool1d", "adaptiveavgpool2d", "adaptiveavgpool3d"),
                    "write `adaptive_avgpool(x, size)`, or `global_avgpool(x)` for size 1"),
    **dict.fromkeys(("adaptivemaxpool1d", "adaptivemaxpool2d", "adaptivemaxpool3d"),
                    "write `adaptive_maxpool(x, size)`, or `global_maxpool(x)` for size 1"),
    **dict.fromkeys(("globalaveragepooling2d", "globalaveragepool", "gap"), "write `global_avgpool(x)`"),
    **dict.fromkeys(("droppath",), "write `stochastic_depth(x, p=0.1)`"),
    **dict.fromkeys(("featurealphadropout",), "write `alpha_dropout(x, p=0.5)`"),
    **dict.fromkeys(("embed", "lookup"), "write `embedding(ids, count, dim)`"),
    **dict.fromkeys(("cat", "concatenate", "hstack", "vstack"), "write `concat([x, y], axis=1)`"),
    **dict.fromkeys(("permute", "swapaxes", "movedim", "moveaxis"),
                    "write `transpose(x, [...])` with the new order of the axes, or `rearrange`"),
    **dict.fromkeys(("chunk", "tensorsplit"), "write `split(x, n)`"),
    **dict.fromkeys(("upsample", "resize", "upsampling2d"), "write `interpolate(x, scale=2)`"),
    **dict.fromkeys(("mm", "bmm", "dot", "addmm"), "write `matmul(a, b)`"),
    **dict.fromkeys(("swish", "siluactivation"), "write `silu(x)`"),
    **dict.fromkeys(("lrelu",), "write `leaky_relu(x)`"),
    **dict.fromkeys(("clamp", "clipbyvalue"), "write `clip(x, low, high)`"),
    **{f"arc{name}": f"write `a{name}(x)`" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **dict.fromkeys(("arctan2",), "write `atan2(y, x)`"),
    **dict.fromkeys(("remainder",), "write `mod(x, y)`, or `fmod(x, y)` for the sign of `x`"),
    **dict.fromkeys(("truedivide", "divide"), "write `x / y`"),
    **dict.fromkeys(("fix",), "write `trunc(x)`"),
    **dict.fromkeys(("geglu",), "write `a, b = split(x, 2)`, then `a * gelu(b)`"),
    **dict.fromkeys(("swiglu",), "write `a, b = split(x, 2)`, then `a * silu(b)`"),
    **dict.fromkeys(("pow",), "write `power(x, y)`"),
    **dict.fromkeys(("gammaln", "loggamma"), "write `lgamma(x)`"),
    **dict.fromkeys(("psi",), "write `digamma(x)`"),
    **dict.fromkeys(("trigamma",), "write `polygamma(x, 1)`"),
    **dict.fromkeys(("betaln",), "write `lgamma(a) + lgamma(b) - lgamma(a + b)`"),
    **dict.fromkeys(("logaddexp",), "write `logsumexp(stack([x, y]), over=0)`"),
    **dict.fromkeys(("xlogy",), "write `x * log(maximum(y, 1e-30))`"),
    **dict.fromkeys(("hypot",), "write `sqrt(x^2 + y^2)`"),
    **dict.fromkeys(("lerp",), "write `a + t * (b - a)`"),
    **dict.fromkeys(("logit",), "write `log(x / (1 - x))`"),
    **dict.fromkeys(("softmin",), "write `softmax(-x)`"),
    **dict.fromkeys(("heaviside",), 'write `cast(x > 0, "float")`'),
    **dict.fromkeys(("countnonzero",), "write `sum(x != 0)`"),
    **dict.fromkeys(("diag", "diagonal", "diagembed"),
                    'write `einsum("ii->i", x)`; `unsqueeze(x, -1) * eye(4)` makes diagonal matrices'),
    **dict.fromkeys(("trace",), 'write `einsum("ii->", x)`'),
    **dict.fromkeys(("outer",), "write `unsqueeze(a, 1) * b`"),
    **dict.fromkeys(("cross",), "write `roll(a, -1) * roll(b, -2) - roll(a, -2) * roll(b, -1)`"),
    **dict.fromkeys(("vectornorm",), "write `norm(x, over=1)`"),
    **dict.fromkeys(("amax",), "write `max(x, over=1)`"),
    **dict.fromkeys(("amin",), "write `min(x, over=1)`"),
    **dict.fromkeys(("pdist",), "write `cdist(x, x)`, which has each distance twice, or `triu(cdist(x, x), 1)`"),
    **dict.fromkeys(("median", "quantile", "kthvalue"), "write `values, _ = sort(x)`, and take an element of `values`"),
    **dict.fromkeys(("bincount", "histc", "histogram"), "write `sum(one_hot(ids, 4), over=0)`"),
    **dict.fromkeys(("searchsorted", "bucketize", "digitize"), "write `sum(unsqueeze(x, -1) > edges, over=-1)`"),
    **dict.fromkeys(("meshgrid",), "write `unsqueeze(arange(4), 1)` and `arange(4)`: operators broadcast"),
    **dict.fromkeys(("randomuniform", "randlike"), "write `rand([B, 8])`"),
    **dict.fromkeys(("randomnormal", "randnlike", "gaussiannoise"), "write `randn([B, 8])`"),
    **dict.fromkeys(("detach", "nograd"), "write `stop_gradient(x)`"),
    **dict.fromkeys(("zerospad2d", "zeropadding2d", "zeropad2d", "padding"), "write `pad(x, before)`"),
    **dict.fromkeys(("crossentropyloss", "softmaxcrossentropy", "sparsecategoricalcrossentropy"),
                    "write `cross_entropy(logits, target)`: it takes logits and class numbers"),
    **dict.fromkeys(("mseloss", "meansquarederror", "l2loss", "l2"), "write `mse(x, t)`"),
    **dict.fromkeys(("l1loss", "mae", "meanabsoluteerror"), "write `l1(x, t)`"),
    **dict.fromkeys(("parameters", "namedparameters"),
                    "only a train section reads parameters: `fc1.weight`, or those of a pattern"),
    **dict.fromkeys(("rmse", "rmseloss", "rootmeansquarederror"), "write `sqrt(mse(x, t))`"),
    **dict.fromkeys(("mape", "meanabsolutepercentageerror"), "write `mean(abs((x - t) / t))`"),
    **dict.fromkeys(("huberloss",), "write `huber(x, t)`"),
    **dict.fromkeys(("smoothl1loss",), "write `smooth_l1(x, t)`"),
    **dict.fromkeys(("gaussiannllloss",), "write `gaussian_nll(x, t, var)`"),
    **dict.fromkeys(("poissonnllloss",), "write `poisson_nll(x, t)`"),
    **dict.fromkeys(("tripletmarginloss", "tripletloss"), "write `triplet_margin(anchor, positive, negative)`"),
    **dict.fromkeys(("marginrankingloss",), "write `margin_ranking(x, y, t)`"),
    **dict.fromkeys(("cosineembeddingloss",), "write `cosine_embedding(x, y, t)`"),
    **dict.fromkeys(("hingeembeddingloss",), "write `hinge_embedding(x, t)`"),
    **dict.fromkeys(("focalloss", "sigmoidfocalloss"), "write `focal(x, t)`"),
    **dict.fromkeys(("diceloss",), "write `dice(sigmoid(x), t)`"),
    **dict.fromkeys(("bceloss", "bcewithlogitsloss", "binarycrossentropy", "binarycrossentropywithlogits"),
                    "write `bce_with_logits(x, t)` of logits, without `sigmoid`; of probabilities `bce(p, t)`"),
    **dict.fromkeys(("nllloss",), "write `nll(log_probs, target)`"),
    **dict.fromkeys(("kldivloss", "kldivergence"), "write `kl_div(log_q, p)`"),
    **dict.fromkeys(("sequential", "modulelist"), "join functions with `|>`, or repeat them in a `for`"),
    **dict.fromkeys(("identity", "noop"), "leave it out"),
    **dict.fromkeys(("print",), "`dslc check` prints the shape of each value; `dslc show` the graph"),
    **dict.fromkeys(("shape", "size", "dim", "rank", "ndim"),
                    "sizes are known here: write the size itself, such as `B`, or `x.shape[0]`"),
}  # fmt: skip

#: The name here of an argument of another framework; the values mean the same, unless `_VALUES` says otherwise.
ARGUMENTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("padding", "pads"), "pad"),
    **dict.fromkeys(("kernelsize", "kernel", "ksize", "poolsize"), "k"),
    **dict.fromkeys(("dilationrate", "dilations"), "dilation"),
    **dict.fromkeys(("outchannels", "filters", "outfeatures", "units", "features", "outputsize"), "out"),
    **dict.fromkeys(("usebias",), "bias"),
    **dict.fromkeys(("outputpadding",), "output_pad"),
    **dict.fromkeys(("group", "featuregroupcount", "numgroups"), "groups"),
    **dict.fromkeys(("rate", "prob", "dropprob", "dropoutrate"), "p"),
    **dict.fromkeys(("epsilon",), "eps"),
    **dict.fromkeys(("keepdim", "keepdims"), "keep"),
    **dict.fromkeys(("labelsmoothing",), "smoothing"),
    **dict.fromkeys(("reduction",), "reduce"),
    **dict.fromkeys(("numembeddings", "vocabsize", "inputvocab", "numclasses"), "count"),
    **dict.fromkeys(("embeddingdim", "embeddim"), "dim"),
    **dict.fromkeys(("iscausal",), "causal"),
    **dict.fromkeys(("attnmask", "attentionmask"), "mask"),
    **dict.fromkeys(("negativeslope",), "slope"),
    **dict.fromkeys(("learningrate",), "lr"),
    **dict.fromkeys(("beta1", "beta2", "b1", "b2"), "betas"),
    **dict.fromkeys(("weightdecayrate", "l2", "wd"), "weight_decay"),
    **dict.fromkeys(("min", "amin", "minvalue"), "low"),
    **dict.fromkeys(("max", "amax", "maxvalue"), "high"),
    **dict.fromkeys(("kernelinitializer", "weightinit"), "init"),
    **dict.fromkeys(("scalefactor",), "scale"),
}  # fmt: skip

#: Arguments of other frameworks that nothing stands for.
NOT_NEEDED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("inchannels", "infeatures", "inputsize", "inputdim", "numfeatures", "numchannels",
                     "normalizedshape"), "leave it out: the size is that of the input"),
    **dict.fromkeys(("inplace", "training", "train", "device", "requiresgrad", "trackrunningstats"),
                    "leave it out: the compiler decides"),
    **dict.fromkeys(("unbiased",), "leave it out: `correction=1` of `var` and `std` gives the unbiased estimate"),
    **dict.fromkeys(("dtype",), "leave it out: `precision { compute = f32 }` sets the dtype of floats"),
}  # fmt: skip

#: What stands here for the values of one argument, `{}`, if it is another form.
_VALUES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("beta1", "b1"), "({}, 0.999)"),
    **dict.fromkeys(("beta2", "b2"), "(0.9, {})"),
}

#: Parameters that the second and third number of a call are, without a name.
_WITHOUT_NAME: Final = ("k", "out")

#: Arguments that name an axis: `over` of a reduction, else `axis`.
_AXES: Final = frozenset(("dim", "dims", "axes", "axis"))

_NONE: Final = "leave the argument out: nothing stands for a missing value"
#: The words here for those of Python.
WORDS_HERE: Final[Mapping[str, str]] = {"True": "true", "False": "false"}
WORDS: Final[Mapping[str, str]] = {
    **{word: f"write `{here}`" for word, here in WORDS_HERE.items()},
    **dict.fromkeys(("None", "null", "nil", "none"), _NONE),
}

#: Names of devices that say no architecture.
GPU_TARGETS: Final = frozenset(
    ("gpu", "cuda", "nvidia", "hopper", "h100", "h200", "a100", "ampere", "ada", "blackwell")
)


def function_hint(name: str) -> str | None:
    """The help for a function of another framework."""
    return FUNCTIONS.get(key_of(name))


def word_hint(name: str) -> str | None:
    """The help for a word of another language: true, false, none."""
    return WORDS.get(name)


def argument_hint(name: str, known: Iterable[str], written: str, value: object = None) -> str | None:
    """The help for an argument of another framework, if the function has what stands for it. ``written``: the source
    text of what was given for it, ``value``: its value, None if it is unknown."""
    known, key = list(known), key_of(name)
    if key in _AXES:
        here = next((each for each in ("over", "axis") if each in known), None)
        return f"write `{here}={_axes(value, here == 'over')}`" if here else None
    own = ARGUMENTS.get(key)
    if own is None or own not in known:
        return NOT_NEEDED.get(key)
    text = _VALUES.get(key, "{}").format(short(WORDS_HERE.get(written, written), "..."))
    if own == "init" and isinstance(value, str):
        text = "normal(0.02)"  # an initialiser is a call here, no text
    return f"write `{own}={text}`" + (", or give it without a name" if own in _WITHOUT_NAME else "")


def short(text: str, other: str) -> str:
    """Source text for a help line; ``other`` if it is long."""
    return text if len(text) <= 40 and "\n" not in text else other


def _axes(value: object, several: bool) -> str:
    """The axes as given, or 1 as an example."""
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    known = all(isinstance(item, int) and not isinstance(item, bool) for item in items)
    if several:
        return str(items if known else [1])
    return str(items[0] if known and len(items) == 1 else 1)


def nearest_hint(name: str, known: Iterable[str]) -> str | None:
    """``did you mean `NAME`?``, or None."""
    near = did_you_mean(name, known)
    return f"did you mean `{near}`?" if near else None


def begins_like(name: str, known: Iterable[str]) -> str | None:
    """``did you mean `kaiming_normal`?`` for the first word of a name of several."""
    near = min((each for each in known if each.startswith(f"{name.lower()}_")), default=None)
    return f"did you mean `{near}`?" if near else None


def target_hint(name: str) -> str | None:
    """The help for a target that is a device's name."""
    if key_of(name) not in GPU_TARGETS:
        return None
    return (
        "name the GPU's architecture: sm_80 for A100 and L4, sm_90 for H100, sm_100 for B200; `dslc doctor` lists GPUs"
    )


def key_of(name: str) -> str:
    """A name in lower case without underscores."""
    return name.replace("_", "").lower()

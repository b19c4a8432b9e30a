"""Creates the entries of an artifact from a checked model: init, accumulate_step, train_step, update_step, eval_step,
eval_finish, predict.

Each function returns a Program whose graph has int sizes but still the abstract float dtype.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from dslc.compiler.check.evaluated import evaluated, unassigned
from dslc.compiler.check.model import Checked
from dslc.compiler.check.training.averages import averaged
from dslc.compiler.check.training.gradients import named_by_patterns
from dslc.compiler.epoch_metrics import epoch_states, over_epochs
from dslc.compiler.eval_partials import split_at_batch
from dslc.compiler.ir.build import GRAD_SUM, RAW, SHARD, LossScale, ParamSpec, TrainSpec, UpdateSpec
from dslc.compiler.ir.function import Optimizer
from dslc.compiler.ir.graph import Graph, Input, Kind, Value, order
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.random.init import initial_value
from dslc.compiler.passes.lower.gradient.gradients import with_gradients
from dslc.runtime.artifact.reserved import LOSS_SUM

ENTRIES = ("init", "accumulate_step", "train_step", "update_step", "eval_step", "eval_finish", "predict")


def train_spec(checked: Checked, scale: LossScale | None = None) -> TrainSpec | None:
    """The updates and the parameter groups; None without a train section. ``scale``: the scale of its loss."""
    train = checked.train
    if train is None or any(update.optimizer is None for update in train.updates):
        return None
    base = float(train.updates[0].optimizer_args["lr"])
    updates: list[UpdateSpec] = []
    found: dict[str, ParamSpec] = {}
    for update in train.updates:
        assert update.optimizer is not None
        args = dict(update.optimizer_args)
        decay_on, clip_norm, clip_value = args.pop("decay_on"), args.pop("clip_norm"), args.pop("clip_value")
        named = named_by_patterns(update, checked.params)
        rules: dict[str, tuple[Optimizer, Mapping[str, Any]]] = {}
        for name in update.trained:
            info = checked.params[name]
            optimizer, own = update.optimizer.rule(args, info.input.value.type, name in named)
            if optimizer is not update.optimizer:
                rules[name] = (optimizer, own)
            pace = 1.0 if own["lr"] == base else float(own["lr"]) / base
            decay = info.groups.decay
            if decay is None:
                everywhere = decay_on == "all" or info.input.value.type.rank >= 2
                decay = float(own["weight_decay"]) if everywhere else 0.0
            found[name] = ParamSpec(name, info.groups.lr * pace, decay)
        updates.append(UpdateSpec(update.name, update.optimizer, args, update.trained, clip_norm, clip_value, rules))
    averages = averaged(checked.params)
    params = tuple(
        found.get(name) or ParamSpec(name, info.groups.lr, trained=False, averages=averages.get(name))
        for name, info in checked.params.items()
        if info.input.kind is Kind.PARAM
    )
    return TrainSpec(tuple(updates), params, train.ema, train.accumulate, scale, train.shards)


def of_epoch(checked: Checked) -> Mapping[str, TensorType]:
    """The tensors of the state that metrics over an epoch are computed from, by name; they start at 0."""
    train = checked.train
    if train is None:
        return {}
    return epoch_states(checked.graph, train.epoch_metrics, checked.batch, train.accumulate)


def optimizer_slots(spec: TrainSpec) -> dict[str, str]:
    """Name of each optimizer tensor -> its parameter, in forward order."""
    slots = {name: spec.slots(update, name) for update in spec.updates for name in update.trained}
    return {f"{p.name}.{slot}": p.name for p in spec.params if p.trained for slot in slots[p.name]}


def slot_type(spec: TrainSpec, slot: str, param: str, type: TensorType) -> TensorType:
    """The type of an optimizer tensor, of a parameter of this type."""
    kind = slot.removeprefix(f"{param}.")
    if kind in (RAW, GRAD_SUM):
        return type
    [update] = [update for update in spec.updates if param in update.trained]
    return update.rule(param)[0].slot_type(kind, type)


def predict(checked: Checked, sizes: Mapping[str, int]) -> Program:
    """Computes the model's results from its inputs, as in evaluation."""
    graph = _with_states(checked, {f"result.{n}": checked.graph.outputs[f"result.{n}"] for n in checked.results})
    wanted = {i.name for i in checked.model_inputs}
    return Program("predict", dict(sizes), _used(_sized(_evaluated(graph, checked), sizes), keep=wanted))


def train_step(checked: Checked, sizes: Mapping[str, int], scale: LossScale | None = None, turn: str = "") -> Program:
    """Computes loss, metrics and buffer updates; the autodiff pass adds gradients and the optimizer's updates.

    If the batch is divided into shards, this is the program of one shard, and ``update_step`` has the updates.
    ``turn``: the name of the update, of a later one that has programs of its own."""
    spec = train_spec(checked, scale)
    assert spec is not None
    if spec.shards > 1:
        return _training(checked, "train_step", sizes, spec, _slots(spec, turn, ()), (), turn)
    return _training(checked, "train_step", sizes, spec, _slots(spec, turn), ("step", "lr"), turn)


def accumulate_step(
    checked: Checked, sizes: Mapping[str, int], scale: LossScale | None = None, turn: str = ""
) -> Program:
    """Like ``train_step``, for each micro-batch but the last: the autodiff pass adds the gradients to their sums."""
    spec = train_spec(checked, scale)
    assert spec is not None and spec.accumulate > 1 and spec.shards == 1
    return _training(checked, "accumulate_step", sizes, spec, _slots(spec, turn, (GRAD_SUM,)), (), turn)


def update_step(checked: Checked, sizes: Mapping[str, int], scale: LossScale | None = None, turn: str = "") -> Program:
    """Reads the sums of all shards' gradients and buffers; the autodiff pass adds the updates."""
    spec = train_spec(checked, scale)
    assert spec is not None and spec.shards > 1
    stored = {name: info.input for name, info in checked.params.items()}
    slots = {
        slot: Input(slot, Kind.OPTIMIZER, slot_type(spec, slot, param, stored[param].value.type), stored[param].span)
        for slot, param in _slots(spec, turn).items()
    }
    slots |= _scaling(spec)
    own = {name for update in spec.in_turn(turn).updates for name in update.trained}
    summed = [stored[name] for name in sorted(own)]
    if not turn:
        buffers = (source for source, _ in checked.graph.updates if source.kind is Kind.BUFFER)
        summed += sorted(buffers, key=lambda i: i.name)
    sums = [Input(f"{SHARD}{i.name}", Kind.DATA, i.value.type, i.span) for i in summed]
    if spec.loss_scale is not None:
        sums.append(Input(f"{SHARD}{LOSS_SUM}", Kind.DATA, TensorType(DType.FLOAT, ())))
    scalars = [Input(n, Kind.SCALAR, TensorType(dtype, ())) for n, dtype in (("step", DType.I64), ("lr", DType.FLOAT))]
    graph = Graph((*stored.values(), *slots.values(), *sums, *scalars), (), {})
    return Program("update_step", dict(sizes), graph.bind(sizes), turn=turn)


def _slots(spec: TrainSpec, turn: str, wanted: Collection[str] | None = None) -> dict[str, str]:
    """The slots that a turn's program reads, with their parameters: of the parameters that it trains the ``wanted``
    ones, by default all, and the raw weight of each."""
    own = {name for update in spec.in_turn(turn).updates for name in update.trained}
    return {
        slot: param
        for slot, param in optimizer_slots(spec).items()
        for kind in [slot.removeprefix(f"{param}.")]
        if kind == RAW or (param in own and (wanted is None or kind in wanted))
    }


def _training(
    checked: Checked,
    entry: str,
    sizes: Mapping[str, int],
    spec: TrainSpec,
    slots: Mapping[str, str],
    scalars: tuple[str, ...],
    turn: str,
) -> Program:
    graph = _of_turn(checked.graph, spec, turn)
    outputs = {n: v for n, v in graph.outputs.items() if not n.startswith("result.")}
    inputs = {i.name: i for i in graph.inputs}
    for slot, param in slots.items():
        type = slot_type(spec, slot, param, inputs[param].value.type)
        inputs[slot] = Input(slot, Kind.OPTIMIZER, type, inputs[param].span)
    inputs |= _scaling(spec)
    for name, dtype in (("step", DType.I64), ("lr", DType.FLOAT)):
        if name in scalars and name not in inputs:
            inputs[name] = Input(name, Kind.SCALAR, TensorType(dtype, ()))
    cut = Graph(tuple(inputs.values()), graph.nodes, outputs, graph.updates)
    if checked.train is not None and not turn:
        cut = over_epochs(cut, checked.train.epoch_metrics, checked.batch, checked.train.accumulate)
    cut = _reading(cut, {inputs[p.name].value: inputs[spec.iterate(p)].value for p in spec.params})
    keep = {i.name for i in cut.inputs if i.kind in (Kind.PARAM, Kind.OPTIMIZER)} | set(scalars)
    return Program(entry, dict(sizes), _used(_sized(cut, sizes), keep=keep), turn=turn)


def _of_turn(graph: Graph, spec: TrainSpec, turn: str) -> Graph:
    """What a turn computes: the loss of its update, as ``loss`` and as a metric. The first turn also computes the other
    metrics and the new buffers, as a step with one program does. The whole graph without turns."""
    if not spec.turns:
        return graph
    name = turn or spec.turns[0]
    losses = {f"metric.{each}" for each in spec.turns}
    outputs = {"loss": graph.outputs[f"metric.{name}"], f"metric.{name}": graph.outputs[f"metric.{name}"]}
    if not turn:
        outputs |= {n: v for n, v in graph.outputs.items() if n.startswith("metric.") and n not in losses}
    updates = () if turn else graph.updates
    return Graph(graph.inputs, order([*outputs.values(), *(v for _, v in updates)]), outputs, updates)


def _scaling(spec: TrainSpec) -> dict[str, Input]:
    """The states of the loss scale, by name; none without one."""
    states = spec.loss_scale.states if spec.loss_scale else {}
    return {name: Input(name, Kind.OPTIMIZER, TensorType(dtype, ())) for name, (dtype, _) in states.items()}


def _reading(graph: Graph, instead: Mapping[Value, Value]) -> Graph:
    """The nodes that the roots need, with values replaced as ``instead`` says."""
    changed = graph.rewrite(lambda node: node.reading(instead))
    return changed.replace_values(instead)


def eval_step(checked: Checked, sizes: Mapping[str, int]) -> Program:
    """Computes the batch reductions for one batch; their results are combined over batches."""
    step, _ = split_at_batch(_evaluation(checked), checked.batch)
    return Program("eval_step", dict(sizes), _used(_sized(step, sizes)))


def eval_finish(checked: Checked, sizes: Mapping[str, int]) -> Program:
    """Computes loss and metrics from the combined reductions."""
    _, finish = split_at_batch(_evaluation(checked), checked.batch)
    keep = {i.name for i in finish.inputs if i.kind is not Kind.CONSTANT}
    return Program("eval_finish", dict(sizes), _used(_sized(finish, sizes), keep=keep))


def _evaluation(checked: Checked) -> Graph:
    outputs = {n: v for n, v in checked.graph.outputs.items() if not n.startswith("result.")}
    return _evaluated(_with_states(checked, outputs), checked)


def _with_states(checked: Checked, outputs: Mapping[str, Value]) -> Graph:
    """The graph of these outputs, with the updates of states but not those of buffers."""
    updates = tuple((i, v) for i, v in checked.graph.updates if i.kind is Kind.STATE)
    return Graph(checked.graph.inputs, order([*outputs.values(), *(v for _, v in updates)]), outputs, updates)


def init(checked: Checked, sizes: Mapping[str, int], scale: LossScale | None = None) -> Program:
    """Fills every state tensor from its initialiser and the seed."""
    from dslc.compiler.ops.random.philox import key_of

    seed = Input("seed", Kind.SCALAR, TensorType(DType.I64, ()))
    inputs: list[Input] = []
    updates: list[tuple[Input, Value]] = []
    for name, info in checked.params.items():
        b = Builder(name=name, span=info.span)
        value = initial_value(b, info.init, seed.value, key_of(name, "init"), info.input.value.type.ints)
        state = Input(name, info.input.kind, info.input.value.type, info.span)
        inputs.append(state)
        updates.append((state, value))
    values = {state.name: value for state, value in updates}
    sources = {name: source for name, (source, _) in averaged(checked.params).items()}
    updates = [(state, values[sources.get(state.name, state.name)]) for state, _ in updates]
    spec = train_spec(checked, scale)
    for slot, param in (optimizer_slots(spec) if spec else {}).items():
        assert spec is not None
        type = slot_type(spec, slot, param, checked.params[param].input.value.type)
        state = Input(slot, Kind.OPTIMIZER, type)
        inputs.append(state)
        zeros = Builder(name=slot)(OPS["full"], value=0.0, dtype=DType.FLOAT, shape=type.shape)
        updates.append((state, values[param] if slot == f"{param}.{RAW}" else zeros))
    for name, type in of_epoch(checked).items():
        state = Input(name, Kind.OPTIMIZER, type)
        inputs.append(state)
        zero = 0 if type.dtype.is_int else 0.0
        updates.append((state, Builder(name=name)(OPS["full"], value=zero, dtype=type.dtype, shape=type.shape)))
    for name, (dtype, number) in (spec.loss_scale.states if spec and spec.loss_scale else {}).items():
        state = Input(name, Kind.OPTIMIZER, TensorType(dtype, ()))
        inputs.append(state)
        updates.append((state, Builder(name=name)(OPS["full"], value=number, dtype=dtype, shape=())))
    nodes = order(v for _, v in updates)
    read = dict.fromkeys(v.producer for node in nodes for v in node.inputs)
    constants = [source for source in read if isinstance(source, Input) and source.kind is Kind.CONSTANT]
    graph = Graph((*inputs, seed, *constants), nodes, {}, tuple(updates))
    return Program("init", dict(sizes), graph.bind(sizes))


def _sized(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """The graph for these sizes, with the nodes of the gradients that it uses."""
    return with_gradients(graph.bind(sizes))


def _evaluated(graph: Graph, checked: Checked) -> Graph:
    """The graph in evaluation: without dropout and assignments to buffers, and with batchnorm reading its own."""
    return evaluated(unassigned(graph, checked.only_trained) if checked.only_trained else graph)


def _used(graph: Graph, keep: set[str] | None = None) -> Graph:
    """The graph without unused inputs, except those named in ``keep``."""
    read = {v for n in graph.nodes for v in n.inputs} | set(graph.roots)
    kept = tuple(
        i for i in graph.inputs if i.value in read or i.name in (keep or ()) or any(i is u for u, _ in graph.updates)
    )
    return Graph(kept, graph.nodes, graph.outputs, graph.updates)

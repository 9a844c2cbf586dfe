"""The draft and the decoder of pictures as ONNX models of float32; nodes of linear layers bear the layers' names.

The draft is `export.graph.DraftGraph` in the operators that ONNX Runtime is fast at. One node rotates, writes the cache
and attends: GroupQueryAttention, which looks at no slot beyond the pass, whatever is in it. Where an engine gives the
same buffer as past and present, it writes keys and values in place.
"""

from __future__ import annotations

import ast
import copy
import tempfile
from pathlib import Path
from typing import Any, cast

import onnx
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pixdraft.export.exporters.quiet import quiet
from pixdraft.export.graph import OUTPUTS, DraftGraph, PictureGraph
from pixdraft.models.transformer import Attention, RMSNorm, TransformerBlock
from pixdraft.runtime.backends.onnx_backend import HEAD_STEP

OPSET = 20
"""Of the standard operators: new enough for all that is here, old enough for phones and browsers."""

PICTURE = "pixels"
"""The decoder's output, float32 [3, H, W]; its input is ``tokens``, int64 [1, T]."""

CONTRIB = "com.microsoft"
"""The domain of ONNX Runtime's own operators; its builds for phones and browsers have them too."""
_NAMES = "pkg.torch.onnx.name_scopes"


def input_names(layers: int) -> tuple[str, ...]:
    """Inputs of the draft, S rows that go to consecutive slots.

    ``x`` float32 [1, S, d]; ``last`` int32 [1], the slot of the last row; ``length`` int32 [], slots in use after this
    pass; ``places`` int64 [1, S], RoPE rows; ``past_keys_0``, ``past_values_0``, ... float32 [1, heads, slots, D].
    """
    return ("x", "last", "length", "places", *_cache_names("past", layers))


def output_names(layers: int) -> tuple[str, ...]:
    """Outputs of the draft: those of `DraftGraph`, then ``present_keys_0``, ``present_values_0``, ...."""
    return (*OUTPUTS, *_cache_names("present", layers))


def _cache_names(when: str, layers: int) -> list[str]:
    return [f"{when}_{what}_{i}" for i in range(layers) for what in ("keys", "values")]


class RuntimeGraph(nn.Module):
    """`DraftGraph` for ONNX Runtime; its linear layers have the same names.

    Args:
        graph: the draft; parameters are shared, but for the first layer of the risk head.
    """

    cosine: Tensor
    sine: Tensor

    def __init__(self, graph: DraftGraph) -> None:
        super().__init__()
        self.heads, width = graph.config.heads, graph.config.head_dim
        self.scale = width**-0.5
        self.width = -(-width // HEAD_STEP) * HEAD_STEP
        self.layers, self.norm, self.output = graph.layers, graph.norm, graph.output
        if self.width > width:
            self.layers = copy.deepcopy(graph.layers)
            for layer in cast("list[TransformerBlock]", self.layers):
                _widen(layer.attention, self.width)
        self.radius, self.message = graph.radius, graph.message
        # The graph has sum p ln p at hand, which is minus the entropy.
        self.risk = copy.deepcopy(graph.risk)
        self.risk.down.weight.data[:, -2].neg_()
        for name, part in zip(("cosine", "sine"), graph.freqs.unbind(-1), strict=True):
            self.register_buffer(name, F.pad(part, (0, (self.width - width) // 2)).contiguous(), persistent=False)

    def forward(self, x: Tensor, last: Tensor, length: Tensor, places: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        """Outputs as `output_names` says, of inputs as `input_names` says."""
        present: list[Tensor] = []
        layers = cast("list[TransformerBlock]", self.layers)
        norms = [norm for layer in layers for norm in (layer.attention_norm, layer.ffn_norm)] + [self.norm]
        normed = _normed(norms[0], x)
        for i, layer in enumerate(layers):
            projected = layer.attention.wqkv(normed)
            keys, values = past[2 * i : 2 * i + 2]
            mixed, *written = torch.onnx.ops.symbolic_multi_out(
                f"{CONTRIB}::GroupQueryAttention",
                (projected, None, None, keys, values, last, length, self.cosine, self.sine, places),
                {
                    "num_heads": self.heads,
                    "kv_num_heads": self.heads,
                    "scale": self.scale,
                    "do_rotary": 1,
                    "rotary_interleaved": 1,
                },
                dtypes=(x.dtype,) * 3,
                shapes=((*x.shape[:2], self.heads * self.width), keys.shape, values.shape),
                version=1,
            )
            present += written
            normed, x = _added(norms[2 * i + 1], x, layer.attention.wo(mixed))
            normed, x = _added(norms[2 * i + 2], x, layer.feed_forward(normed))
        feature = normed.squeeze(0)
        center = self.output(feature)
        below = torch.log_softmax(center, -1)
        p = below.exp()
        # softplus by its parts: Softplus is the slowest operator of all, one value at a time, and Sigmoid, whose error
        # is one of 1e-7 whatever the result, gives 0 from a radius of 17 on, where this goes to 88.
        growth = 1 + self.radius(feature).exp()
        risk, message = self._risk(feature, below, p), self._message(feature, p, growth.reciprocal())
        return (center, growth.log(), feature, risk, message, *present)

    def _risk(self, feature: Tensor, below: Tensor, p: Tensor) -> Tensor:
        """`models.inter_head.RiskHead` of ln p and p."""
        seen = torch.cat([feature, (p * below).sum(-1, keepdim=True), p.amax(-1, keepdim=True)], dim=-1)
        return torch.sigmoid(self.risk.up(F.silu(self.risk.down(seen)))).squeeze(-1)

    def _message(self, feature: Tensor, p: Tensor, shrink: Tensor) -> Tensor:
        """`export.graph.Message` of e^-radius: sigmoid(a - r) = p e^-r / (p e^-r + 1 - p), a = ln(p / (1 - p)).

        `fuse` spends ten operators on the digits of 1 - p, which are lost here below 1e-7: nothing in a bound, unless
        the radius is above 10. And the device takes U from centre and radius, not from these. Where p is 1, each bound
        is a number over itself: no sum here may take from p what it must keep.
        """
        shrunk, others = p * shrink, 1 - p
        bounds = torch.cat([shrunk / (shrunk + others), p / (p + others * shrink)], dim=-1)
        return F.silu(self.message.feature(feature) + self.message.bounds(bounds))


def _widen(attention: Attention, width: int) -> None:
    """Give every head more dimensions, which stay zero: they change no score and no result."""
    rows = attention.wqkv.weight.detach().unflatten(0, (3, attention.heads, -1))
    more = width - rows.shape[2]
    columns = attention.wo.weight.detach().unflatten(1, (attention.heads, -1))
    attention.wqkv.weight = nn.Parameter(F.pad(rows, (0, 0, 0, more)).flatten(0, 2), requires_grad=False)
    attention.wo.weight = nn.Parameter(F.pad(columns, (0, more)).flatten(1), requires_grad=False)


def _normed(norm: RMSNorm, x: Tensor) -> Tensor:
    # Divided by a root, not multiplied by its inverse: this form ONNX Runtime knows and makes one node of.
    return x / torch.sqrt(x.square().mean(-1, keepdim=True) + norm.eps) * norm.weight


def _added(norm: RMSNorm, x: Tensor, more: Tensor) -> tuple[Tensor, Tensor]:
    """x + more after a norm, and itself."""
    normed, *_, total = torch.onnx.ops.symbolic_multi_out(
        f"{CONTRIB}::SkipSimplifiedLayerNormalization",
        (x, more, norm.weight),
        {"epsilon": norm.eps},
        dtypes=(x.dtype,) * 4,
        shapes=(x.shape, (1,), (1,), x.shape),  # the two in the middle are never computed, see `_forget_unused`
        version=1,
    )
    return normed, total


def draft_model(graph: DraftGraph) -> onnx.ModelProto:
    """The draft; S and the number of slots are free."""
    config, module = graph.config, RuntimeGraph(graph).eval()
    rows = 3  # of the example; 0 and 1 would be taken for constants
    # A tensor each: of one given twice, torch.export makes one input and forgets the other.
    past = [torch.zeros(1, config.heads, graph.capacity, module.width) for _ in range(2 * config.layers)]
    example = (
        torch.zeros(1, rows, config.dim),
        torch.tensor([rows - 1], dtype=torch.int32),
        torch.tensor(rows, dtype=torch.int32),
        torch.arange(rows)[None],
        *past,
    )
    count, slots = torch.export.Dim("rows", min=1, max=graph.capacity), torch.export.Dim("slots", min=1)
    shapes = ({1: count}, None, None, {1: count}, ({2: slots},) * (2 * config.layers))
    names = input_names(config.layers), output_names(config.layers)
    model = _converted(module, example, shapes, *names)
    inputs = {value.name: value.type.tensor_type.shape.dim for value in model.graph.input}
    _rename_sizes(model, {inputs["x"][1].dim_param: "rows", inputs["past_keys_0"][2].dim_param: "slots"})
    return model


def decoder_model(graph: PictureGraph, image_tokens: int) -> onnx.ModelProto:
    """The decoder of pictures of `image_tokens` tokens."""
    tokens = torch.zeros(1, image_tokens, dtype=torch.int64)
    return _converted(graph.eval(), (tokens,), (None,), ("tokens",), (PICTURE,))


def _converted(
    module: nn.Module, example: tuple[Tensor, ...], shapes: Any, inputs: tuple[str, ...], outputs: tuple[str, ...]
) -> onnx.ModelProto:
    with quiet(), torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        program = torch.export.export(module, example, dynamic_shapes=shapes, strict=False)
        path = Path(folder) / "model.onnx"
        torch.onnx.export(
            program,
            (),
            path,
            dynamo=True,
            input_names=inputs,
            output_names=outputs,
            opset_version=OPSET,
            external_data=False,
            verbose=False,
        )
        model = onnx.load(path)
    layers = {name for name, part in module.named_modules() if isinstance(part, nn.Linear)}
    for node in model.graph.node:
        if (layer := _module_of(node)) in layers and node.op_type in ("MatMul", "Gemm"):
            node.name = layer
        # What is left of the metadata are file names and lines of the machine that exported.
        node.ClearField("metadata_props")
    _forget_unused(model)
    for part in (model, model.graph, *model.graph.value_info, *model.graph.input, *model.graph.output):
        part.ClearField("metadata_props")
    return model


def _forget_unused(model: onnx.ModelProto) -> None:
    """Leave out results that nobody takes: an engine would hold the made-up shapes of `_added` against its own."""
    graph = model.graph
    used = {name for node in graph.node for name in node.input} | {value.name for value in graph.output}
    for node in graph.node:
        kept = [name if name in used else "" for name in node.output]
        while not kept[-1]:
            kept.pop()
        node.output[:] = kept
    told = [value for value in graph.value_info if value.name in used]
    del graph.value_info[:]
    graph.value_info.extend(told)


def _module_of(node: onnx.NodeProto) -> str:
    scopes = next((entry.value for entry in node.metadata_props if entry.key == _NAMES), "[]")
    names: list[str] = ast.literal_eval(scopes)
    return names[-2] if len(names) > 1 else ""


def _rename_sizes(model: onnx.ModelProto, names: dict[str, str]) -> None:
    """Give the free sizes the names that a reader of the file understands."""
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param in names:
                size.dim_param = names[size.dim_param]

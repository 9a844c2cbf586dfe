"""What a rule costs: entropy, TV and the filter of CSD over one block, beside the target's own pass of that block.

All are timed in turn, round after round in one run, so that whatever slows the machine down slows all of them; every
sample is kept.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pixdraft.decoding.ratio_rules import CSD, Lossless
from pixdraft.models import acceptance
from pixdraft.models.config import LLAMAGEN, TransformerConfig
from pixdraft.models.torch_target import guide
from pixdraft.models.transformer import StaticCache, Transformer, rope_table
from pixdraft.runtime.files import written_beside
from pixdraft.trials.provenance import provenance

NAME = "rule_cost"
PUBLISHED = {  # CSD, arXiv 2606.27829, milliseconds an iteration on one A6000, stated in a published note on it
    "pass_ms": 35.40,
    "entropy_ms": 0.038,
    "filter_ms": 0.020,
    "share": 0.0017,
}
PARTS = ("pass", "entropy", "tv", "filter", "csd", "lossless")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
GUIDANCE = 3.0


@dataclass(frozen=True)
class Setting:
    """What is timed.

    Attributes:
        shape: of the target.
        block: positions of one pass.
        rows: of the pass: 2 under guidance.
        first: image tokens before the block.
        device, dtype: where and in what the target runs; the rule takes float32 probabilities there.
        rounds: samples of each part.
        warm: rounds before them that are not kept.
    """

    shape: TransformerConfig = LLAMAGEN["XL"]
    block: int = 16
    rows: int = 2
    first: int = 128
    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    rounds: int = 50
    warm: int = 3

    def __post_init__(self) -> None:
        if self.first < 1 or self.block < 1 or self.first + self.block > self.shape.image_tokens:
            raise ValueError(
                f"a block of {self.block} after {self.first} tokens leaves the picture's {self.shape.image_tokens}: "
                "lower block or first"
            )
        if self.rounds < 1 or self.warm < 0:
            raise ValueError(f"rounds is {self.rounds} and warm {self.warm}: give at least 1 and 0")


def setting(shape: str, block: int, rounds: int, device: str, dtype: str) -> Setting:
    """A setting by names.

    Raises:
        ValueError: one is unknown, the block does not fit, or the device is not there.
    """
    if shape not in LLAMAGEN:
        raise ValueError(f"there is no shape {shape!r}: the known ones are {', '.join(LLAMAGEN)}")
    if dtype not in DTYPES:
        raise ValueError(f"there is no dtype {dtype!r}: the known ones are {', '.join(DTYPES)}")
    if not re.fullmatch(r"cpu|mps|cuda(:[0-9]{1,3})?", device):
        raise ValueError(f"there is no device {device!r}: the known ones are cpu, cuda, cuda:N, mps")
    if not _there(device):
        raise ValueError(f"the device {device!r} is not there: take cpu")
    return Setting(LLAMAGEN[shape], block, device=device, dtype=DTYPES[dtype], rounds=rounds)


def _there(device: str) -> bool:
    if device.startswith("cuda"):
        return torch.cuda.is_available() and int(device[5:] or 0) < torch.cuda.device_count()
    return device == "cpu" or torch.backends.mps.is_available()


def measure(setting: Setting) -> dict[str, list[float]]:
    """Milliseconds of every part, one sample a round.

    Returns:
        pass: the target over the block, guidance and softmax among it.
        entropy, tv: of the block's distributions.
        filter: eps from both, and the ratio with eps cut to 1.
        csd, lossless: the whole rules of `models.acceptance`, entropy and TV among the first.
    """
    parts = _parts(setting)
    samples: dict[str, list[float]] = {name: [] for name in PARTS}
    for number in range(setting.warm + setting.rounds):
        for name in PARTS:
            spent = _milliseconds(parts[name], setting.device)
            if number >= setting.warm:
                samples[name].append(spent)
    return samples


def shares(samples: dict[str, list[float]]) -> dict[str, Any]:
    """Medians in milliseconds, and what the rule adds as a share of the pass.

    share: entropy, TV and filter over the pass. added: CSD whole less the lossless rule whole, over the pass.
    """
    medians = {name: float(torch.tensor(values).double().median()) for name, values in samples.items()}
    extra = medians["entropy"] + medians["tv"] + medians["filter"]
    return {
        "median_ms": medians,
        "share": extra / medians["pass"],
        "added": (medians["csd"] - medians["lossless"]) / medians["pass"],
    }


def run(setting: Setting, out: Path, command: str) -> dict[str, Any]:
    """Measure, and leave ``OUT/rule_cost.json`` with all samples."""
    samples = measure(setting)
    device = torch.cuda.get_device_name(setting.device) if setting.device.startswith("cuda") else setting.device
    result = {
        "shape": setting.shape.to_dict(),
        "block": setting.block,
        "rows": setting.rows,
        "first": setting.first,
        "device": device,
        "dtype": str(setting.dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(),
        **shares(samples),
        "published": PUBLISHED,
        "samples_ms": samples,
        "made": provenance(command),
    }
    out.mkdir(parents=True, exist_ok=True)
    with written_beside(out / f"{NAME}.json") as file:
        file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


def _parts(setting: Setting) -> dict[str, Callable[[], Any]]:
    torch.manual_seed(0)
    forward = _pass(setting)
    with torch.inference_mode():
        q = forward()
        p = (q.log() + 0.5 * torch.randn_like(q)).softmax(-1)  # of an earlier guess: like q, but not q
        tokens = p.multinomial(1)[:, 0]
    rule, lossless = CSD(), Lossless()
    entropy, tv = acceptance.entropy(q), acceptance.total_variation(p, q)
    ratio = acceptance.probabilities(lossless, q, p, tokens)

    def relax() -> Tensor:
        return (ratio + torch.where(tv < rule.delta, rule.lam * entropy, 0.0)).clamp(max=1.0)

    return {
        "pass": forward,
        "entropy": lambda: acceptance.entropy(q),
        "tv": lambda: acceptance.total_variation(p, q),
        "filter": relax,
        "csd": lambda: acceptance.probabilities(rule, q, p, tokens),
        "lossless": lambda: acceptance.probabilities(lossless, q, p, tokens),
    }


def _pass(setting: Setting) -> Callable[[], Tensor]:
    """A target of random weights, its cache filled up to the block: a function of one pass, giving q [block, V]."""
    shape, device = setting.shape, setting.device
    with torch.device("meta"):  # the usual initialisation would take longer than all that is timed
        target = Transformer(shape, nn.Identity()).to(setting.dtype)
    target.to_empty(device=device).requires_grad_(False)
    for parameter in target.parameters():
        nn.init.normal_(parameter, std=0.02) if parameter.dim() > 1 else nn.init.ones_(parameter)
    target.freqs = rope_table(shape).to(device)
    first = shape.condition_length + setting.first
    with torch.device(device):
        cache = StaticCache(shape, setting.rows, setting.dtype)  # of zeros: attention takes as long over them
    valid = torch.ones(setting.rows, shape.condition_length, dtype=torch.bool, device=device)
    tokens = torch.randint(shape.vocab_size, (setting.block,), device=device)

    def forward() -> Tensor:
        embedded = target.tok_embeddings(tokens).expand(setting.rows, -1, -1)
        logits = guide(target.output(target.core(embedded, valid, first, cache)), GUIDANCE)
        return logits.float().softmax(-1)

    return forward


def _milliseconds(call: Callable[[], Any], device: str) -> float:
    with torch.inference_mode():
        _wait(device)
        began = time.perf_counter()
        call()
        _wait(device)
        return 1000 * (time.perf_counter() - began)


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    elif device == "mps":
        torch.mps.synchronize()

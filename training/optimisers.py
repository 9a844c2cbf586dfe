"""Muon on the matrices of the blocks, AdamW on the rest: far faster here than AdamW alone."""

from __future__ import annotations

import torch
from torch import nn


class Optimisers:
    """The two optimisers of one network, driven as one.

    Args:
        model: its parameters under ``layers.`` that are matrices go to Muon.
        muon_rate, adam_rate: learning rates at full height; `step` scales both.
    """

    def __init__(self, model: nn.Module, muon_rate: float = 0.02, adam_rate: float = 3e-3) -> None:
        matrices: list[nn.Parameter] = []
        rest: list[nn.Parameter] = []
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                (matrices if parameter.dim() == 2 and "layers." in name else rest).append(parameter)
        self.parameters = matrices + rest
        self.muon = torch.optim.Muon(matrices, lr=muon_rate, weight_decay=0.01, momentum=0.95)
        self.adam = torch.optim.AdamW(rest, lr=adam_rate, betas=(0.9, 0.95), weight_decay=0.01)
        self.rates = {id(self.muon): muon_rate, id(self.adam): adam_rate}

    def step(self, loss: torch.Tensor, factor: float) -> None:
        """Backward pass, clipping to norm 1 and one step at `factor` of the full learning rates."""
        for optimiser in (self.muon, self.adam):
            optimiser.zero_grad(set_to_none=True)
            for group in optimiser.param_groups:
                group["lr"] = self.rates[id(optimiser)] * factor
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.muon.step()
        self.adam.step()

    def state_dict(self) -> dict[str, object]:
        """Both states."""
        return {"muon": self.muon.state_dict(), "adam": self.adam.state_dict()}

    def load_state_dict(self, state: dict[str, dict[str, object]]) -> None:
        """Take both states back."""
        self.muon.load_state_dict(state["muon"])
        self.adam.load_state_dict(state["adam"])

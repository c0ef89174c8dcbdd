"""Dropout. On a CPU half its time is drawing random numbers one by one; here one word of 64 bits serves four."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Dropout(nn.Dropout):
    """Each number is 0 with probability p, and 1 / (1 - p) times itself otherwise; p is rounded to 1 / 65,536."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0.0 or x.device.type != "cpu":
            return super().forward(x)
        words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        sixteen_bits = words.view(torch.int16)[: x.numel()].view(x.shape)
        kept = sixteen_bits >= round(self.p * 2**16) - 2**15
        return x * kept.view(torch.uint8).to(x.dtype).mul_(1 / (1 - self.p))  # bool times float would be slow

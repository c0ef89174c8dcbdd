"""Where a token stands: the sin/cos table of section 3.5 and its variants, or a learned one."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def sinusoid_table(length: int, d_model: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)),  PE(pos, 2i+1) = cos(pos / 10000^(2i/d_model))."""
    pos = torch.arange(length, dtype=torch.float64).unsqueeze(1)  # (T, 1)
    even = torch.arange(0, d_model, 2, dtype=torch.float64)  # 2i
    angle = pos * torch.exp(-math.log(10000.0) * even / d_model)  # (T, D/2)
    table = torch.empty(length, d_model)
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle.cos()
    return table


def halves_table(length: int, d_model: int) -> Tensor:
    """The same with all sines first and all cosines after them, as Hugging Face has it for Marian's models."""
    table = sinusoid_table(length, d_model)
    return torch.cat([table[:, 0::2], table[:, 1::2]], 1)


def fairseq_table(length: int, d_model: int, first: int = 2) -> Tensor:
    """Halves again, as fairseq has them: counted from 2, and the slowest angle is exactly pos / 10000."""
    pos = torch.arange(first, length + first, dtype=torch.float64).unsqueeze(1)  # (T, 1)
    half = d_model // 2
    angle = pos * torch.exp(-math.log(10000.0) * torch.arange(half, dtype=torch.float64) / max(1, half - 1))
    return torch.cat([angle.sin(), angle.cos()], 1).float()


def marian_table(length: int, d_model: int) -> Tensor:
    """Those of Marian itself, counted from 0. (What others made of its models has halves_table.)"""
    return fairseq_table(length, d_model, first=0)


TABLES = {"sinusoid": sinusoid_table, "halves": halves_table, "fairseq": fairseq_table, "marian": marian_table}
SAME = 2e-3  # how far a table may be from its formula: the last bits of float16


def kind_of_table(table: Tensor) -> str:
    """The formula that made a table (T, D), or `learned`."""
    length, d_model = table.shape
    if d_model % 2:
        return "learned"
    made = (kind for kind, make in TABLES.items() if (make(length, d_model) - table).abs().max() < SAME)
    return next(made, "learned")


class SinusoidPositions(nn.Module):
    """Fixed positions. The table is computed, not trained, and so is not saved with the weights."""

    table: Tensor

    def __init__(self, length: int, d_model: int, kind: str = "sinusoid") -> None:
        super().__init__()
        self.register_buffer("table", TABLES[kind](length, d_model), persistent=False)

    def forward(self, positions: Tensor) -> Tensor:
        return self.table[positions]  # (R, T) -> (R, T, D)


class LearnedPositions(nn.Module):
    """A trained vector for each position below `length`."""

    def __init__(self, length: int, d_model: int) -> None:
        super().__init__()
        self.table = nn.Embedding(length, d_model)

    def forward(self, positions: Tensor) -> Tensor:
        return self.table(positions)

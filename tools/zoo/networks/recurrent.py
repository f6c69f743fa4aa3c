"""LSTM and GRU: two layers, both directions, initial states as inputs."""

import torch
from torch import Tensor, nn

from tools.zoo.networks.network import EVERY, Network

LENGTH, INPUTS, HIDDEN = 10, 12, 16


class Lstm(nn.Module):
    """A bidirectional LSTM, batch first, with its states as inputs and outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(INPUTS, HIDDEN, 2, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the sequence and the last states."""
        y, (h, c) = self.lstm(x, (h, c))
        return y, h, c


class Gru(nn.Module):
    """A bidirectional GRU, time first, with an initial state of zeros, and a linear layer for each time step."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(INPUTS, HIDDEN, 2, bidirectional=True)
        self.classifier = nn.Linear(2 * HIDDEN, 5)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        return self.classifier(self.gru(x)[0])


def with_states(batch: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return a sequence and initial states."""
    h, c = (0.5 * torch.randn(4, batch, HIDDEN) for _ in range(2))
    return torch.randn(batch, LENGTH, INPUTS), h.tanh(), c


def sequence(batch: int) -> tuple[Tensor]:
    """Return a sequence, time first."""
    return (torch.randn(LENGTH, batch, INPUTS),)


NETWORKS = [
    Network(
        "lstm",
        Lstm,
        with_states,
        ("x", "h0", "c0"),
        ("y", "hn", "cn"),
        {"h0": 1, "c0": 1, "hn": 1, "cn": 1},
        exports=EVERY,
    ),
    Network("gru", Gru, sequence, ("x",), ("logits",), {"x": 1, "logits": 1}),
]

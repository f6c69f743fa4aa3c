"""The training script of the example: its gradients, that it learns, and what the committed weights reach."""

import numpy as np
import pytest
from digits_data import load_part
from digits_network import load_weights, weight_names
from train import accuracy, train
from training_layers import TrainingNetwork

STEP = 1e-6
PARAMETERS = [name for name in weight_names() if not name.endswith(("/mean", "/variance"))]


@pytest.fixture(scope="module")
def batch():
    part = load_part("train")
    return part.images[:12].astype(np.float64), part.labels[:12]


@pytest.mark.parametrize("name", PARAMETERS)
def test_gradient_is_the_slope_of_the_loss(name, batch):
    network = TrainingNetwork(seed=1, dtype=np.float64)
    random = np.random.RandomState(2)
    for parameter in network.parameters.values():  # scales of 1 and shifts of 0 would hide mistakes
        parameter += 0.1 * random.standard_normal(parameter.shape)
    _, gradients = network.loss_and_gradients(*batch)
    values = network.parameters[name].reshape(-1)
    for position in random.choice(values.size, size=min(4, values.size), replace=False):
        here = values[position]
        values[position] = here + STEP
        above, _ = network.loss_and_gradients(*batch)
        values[position] = here - STEP
        below, _ = network.loss_and_gradients(*batch)
        values[position] = here
        slope = (above - below) / (2 * STEP)
        # float64 rounds the loss to about 1e-16, so the slope is good to about 1e-10 / 1e-6 of it
        assert gradients[name].flat[position] == pytest.approx(slope, rel=1e-4, abs=1e-8), position


def test_two_runs_give_the_same_weights():
    part = load_part("train")
    first, second = train(part, epochs=1), train(part, epochs=1)
    assert {name: value.tobytes() for name, value in first.items()} == {n: v.tobytes() for n, v in second.items()}


def test_a_short_training_learns():
    assert accuracy(train(load_part("train"), epochs=3), load_part("test")) > 0.9  # chance is 0.1


def test_committed_weights_read_the_test_images():
    weights = load_weights()
    assert {value.dtype for value in weights.values()} == {np.dtype(np.float32)}
    assert accuracy(weights, load_part("test")) >= 0.97

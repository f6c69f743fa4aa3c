"""Trains the network and writes ``weights.npz``: ``python train.py``. Needs NumPy and less than a minute.

The seed determines everything except low-order bits of the matmuls, which depend on the BLAS library and on its number
of threads. The committed weights came from one run; ``write_onnx.py``, ``write_tflite.py`` and ``write_caffe.py`` start
from them.
"""

import time
from collections.abc import Iterator

import numpy as np
from digits_data import Part, load_part
from digits_network import WEIGHTS_FILE, Array, Weights, predict, weight_names
from training_layers import TrainingNetwork

SEED = 7
EPOCHS = 30
BATCH = 50
LEARNING_RATE = 4e-3
WEIGHT_DECAY = 1e-3
MEAN_DECAY = 0.9  # Adam: decay of the running mean of the gradient
SQUARE_DECAY = 0.999  # Adam: decay of the running mean of the squared gradient


class Adam:
    """AdamW: Adam with decoupled weight decay (Kingma and Ba 2015, Loshchilov and Hutter 2019)."""

    def __init__(self, parameters: dict[str, Array]) -> None:
        self.parameters = parameters
        self.means = {name: np.zeros_like(value) for name, value in parameters.items()}
        self.squares = {name: np.zeros_like(value) for name, value in parameters.items()}
        self.steps = 0

    def step(self, gradients: dict[str, Array], rate: float) -> None:
        """Updates every parameter once. Weight decay does not apply to biases and batch norm."""
        self.steps += 1
        for name, gradient in gradients.items():
            mean, square = self.means[name], self.squares[name]
            mean += (1 - MEAN_DECAY) * (gradient - mean)
            square += (1 - SQUARE_DECAY) * (gradient * gradient - square)
            unbiased_mean = mean / (1 - MEAN_DECAY**self.steps)
            unbiased_square = square / (1 - SQUARE_DECAY**self.steps)
            parameter = self.parameters[name]
            if name.endswith("/weight"):
                parameter *= 1 - rate * WEIGHT_DECAY
            parameter -= rate * unbiased_mean / (np.sqrt(unbiased_square) + 1e-8)


def shift_images(images: Array, random: np.random.RandomState) -> Array:
    """Shifts every image at random by -1, 0 or 1 pixels along both axes and fills with zeros."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    size = images.shape[-1]
    moves = random.randint(0, 3, size=(len(images), 2))
    return np.stack([p[:, r : r + size, c : c + size] for p, (r, c) in zip(padded, moves, strict=True)])


def batches(part: Part, random: np.random.RandomState) -> Iterator[Part]:
    """Yields the batches of one epoch: shifted images in random order. An incomplete last batch is left out."""
    order = random.permutation(len(part.images))
    for start in range(0, len(order) - BATCH + 1, BATCH):
        chosen = order[start : start + BATCH]
        yield Part(shift_images(part.images[chosen], random), part.labels[chosen])


def train(part: Part, epochs: int = EPOCHS, seed: int = SEED) -> dict[str, Array]:
    """Trains from scratch with a cosine learning rate schedule that decreases to zero."""
    network = TrainingNetwork(seed)
    optimizer = Adam(network.parameters)
    random = np.random.RandomState(seed)
    total = epochs * (len(part.images) // BATCH)
    for _ in range(epochs):
        for batch in batches(part, random):
            _, gradients = network.loss_and_gradients(batch.images, batch.labels)
            rate = LEARNING_RATE * 0.5 * (1 + np.cos(np.pi * optimizer.steps / total))
            optimizer.step(gradients, rate)
    return network.weights()


def accuracy(weights: Weights, part: Part) -> float:
    """Share of the images whose most probable digit is the label."""
    return float((predict(weights, part.images).argmax(axis=1) == part.labels).mean())


def main() -> None:
    """Trains the network, prints its accuracy and saves the weights."""
    begin = time.perf_counter()
    weights = train(load_part("train"))
    print(f"trained in {time.perf_counter() - begin:.1f} s")
    for name in ("train", "test"):
        print(f"accuracy on the {name} images: {accuracy(weights, load_part(name)):.2%}")
    np.savez(WEIGHTS_FILE, **{name: weights[name] for name in weight_names()})  # type: ignore[arg-type,unused-ignore]  # numpy/numpy#22662: the stub takes every keyword for allow_pickle


if __name__ == "__main__":
    main()

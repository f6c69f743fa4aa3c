"""Inputs with the statistics of natural images: seeded noise whose amplitude decreases with the frequency."""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.types import Array

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_DEVIATION = (0.229, 0.224, 0.225)
SHARED = 0.85
"""Weight of the gray image that the three channels share: natural images are mostly gray."""


def natural_images(count: int, size: int, seed: int) -> Array:
    """Images of 1/f noise in 0..1. Shape: [count, 3, size, size]."""
    random = np.random.default_rng(seed)
    down, along = np.meshgrid(np.fft.fftfreq(size), np.fft.rfftfreq(size), indexing="ij")
    frequency = np.hypot(down, along)
    frequency[0, 0] = 1.0
    amplitude = 1.0 / frequency
    amplitude[0, 0] = 0.0
    made = np.empty((count, 3, size, size), np.float32)
    for image in made:
        white = random.standard_normal((4, size, size))
        noise = np.fft.irfft2(np.fft.rfft2(white) * amplitude, s=(size, size))
        noise /= noise.std(axis=(1, 2), keepdims=True)
        mixed = SHARED * noise[0] + np.sqrt(1 - SHARED**2) * noise[1:]
        level = random.uniform(0.35, 0.55, (3, 1, 1))
        image[...] = np.clip(level + random.uniform(0.12, 0.25) * mixed, 0, 1)
    return made


def normalize(images: Array) -> Array:
    """Images in 0..1, normalized as ImageNet classifiers require."""
    mean = np.array(IMAGENET_MEAN, np.float32).reshape(3, 1, 1)
    deviation = np.array(IMAGENET_DEVIATION, np.float32).reshape(3, 1, 1)
    result: Array = (images - mean) / deviation
    return result


def hidden_states(count: int, tokens: int, width: int, seed: int) -> Array:
    """Inputs of a transformer layer: normal noise with some much wider channels. Shape: [count, tokens, width]."""
    random = np.random.default_rng(seed)
    spread = np.exp(random.normal(0, 0.4, width))
    return (random.standard_normal((count, tokens, width)) * spread).astype(np.float32)

"""Sounds made by code: speech of espeak-ng, notes and melodies. Each is a function of an index."""

from __future__ import annotations

import functools
import random
import shutil
import subprocess
import tempfile
import wave
from pathlib import Path

import numpy as np

from tools.accuracy.trained.pictures import random_words
from tpuconvert.schema.types import Array

VOICES = ("en-us", "en-gb", "en-us+f2", "en-gb+m3", "en-us+f4", "en-gb+m7", "de", "fr")
SPEECH_RATE = 16_000
NOTES_RATE = 22_050
COMMAND_SAMPLES = 44_800
FRAME, CONTEXT = 512, 64
"""Samples of a frame of the voice detector, and samples of the frame before it that precede them."""


@functools.lru_cache(4096)
def _spoken(text: str, voice: str, speed: int, pitch: int) -> Array:
    """Return a text spoken by espeak-ng, float32 from -1 to 1 at SPEECH_RATE."""
    if shutil.which("espeak-ng") is None:
        raise FileNotFoundError("speech samples need the program espeak-ng")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spoken.wav"
        command = ["espeak-ng", "-v", voice, "-s", str(speed), "-p", str(pitch), "-w", str(path), text]
        subprocess.run(command, check=True, capture_output=True)
        with wave.open(str(path)) as file:
            rate = file.getframerate()
            samples = np.frombuffer(file.readframes(file.getnframes()), np.int16).astype(np.float32) / 32768
    times = np.arange(int(len(samples) * SPEECH_RATE / rate)) * (rate / SPEECH_RATE)
    resampled: Array = np.interp(times, np.arange(len(samples)), samples).astype(np.float32)
    return resampled


def _random_speech(draws: random.Random, text: str, voices: int, speeds: tuple[int, int]) -> Array:
    voice = draws.choice(VOICES[:voices])
    return _spoken(text, voice, draws.randint(*speeds), draws.randint(20, 80))


def speech(index: int, samples: int) -> Array:
    """Sentences with gaps: clean, with white noise, clipped, or with low noise. float32 from -1 to 1."""
    draws, noise = random.Random(6000 + index), np.random.default_rng(6000 + index)
    sound: Array = np.zeros(0, np.float32)
    while len(sound) < samples:
        sentence = _random_speech(draws, random_words(draws, 6, 12), len(VOICES), (120, 200))
        sound = np.concatenate([sound, sentence, np.zeros(draws.randint(0, 8000), np.float32)])
    sound = sound[:samples] * draws.uniform(0.2, 1.5)
    kind = index % 4
    if kind == 1:
        sound = sound + noise.normal(0, 10 ** draws.uniform(-3.5, -1.2), samples)
    elif kind == 2:
        sound = np.clip(sound * draws.uniform(2, 8), -0.5, 0.5)
    elif kind == 3:
        low = np.convolve(noise.normal(0, 1, samples), np.ones(40) / 40, "same")
        sound = sound + low * draws.uniform(0.02, 0.3)
    return np.clip(sound, -1, 1).astype(np.float32)


def frames(index: int, count: int) -> Array:
    """Speech with pauses of up to 2 seconds, as frames [count, CONTEXT + FRAME] that overlap by CONTEXT."""
    draws = random.Random(9500 + index)
    sound = speech(9500 + index, count * FRAME).copy()
    for _ in range(count * FRAME // 40_000):
        start = draws.randrange(count * FRAME)
        sound[start : start + draws.randint(8000, 32_000)] *= 0.002
    padded = np.concatenate([np.zeros(CONTEXT, np.float32), sound])
    return np.stack([padded[start : start + CONTEXT + FRAME] for start in range(0, count * FRAME, FRAME)])


def command(index: int, phrase: str) -> Array:
    """2.8 s with a phrase where the index is odd, otherwise with other words. float32 in the range of int16."""
    draws, noise = random.Random(8000 + index), np.random.default_rng(8000 + index)
    text = phrase if index % 2 else random_words(draws, 1, 3)
    spoken = _random_speech(draws, text, 6, (110, 190))[:36_000]
    sound = noise.normal(0, 10 ** draws.uniform(-4, -2), COMMAND_SAMPLES)
    start = draws.randint(4000, COMMAND_SAMPLES - len(spoken))
    sound[start : start + len(spoken)] += spoken * draws.uniform(0.4, 1.2)
    return (np.clip(sound, -1, 1) * 32767).astype(np.float32)


def notes(index: int, samples: int) -> Array:
    """Three to nine tones with harmonics that may overlap, and a little noise, at NOTES_RATE."""
    draws, noise = random.Random(6500 + index), np.random.default_rng(6500 + index)
    sound = noise.normal(0, 10 ** draws.uniform(-4, -2.3), samples)
    times = np.arange(samples) / NOTES_RATE
    for _ in range(draws.randint(3, 9)):
        frequency = 440 * 2 ** ((draws.randint(36, 84) - 69) / 12)
        since, length = times - draws.uniform(0, 1.6), draws.uniform(0.15, 0.8)
        decay = np.exp(-since / length * draws.uniform(1, 4)) * np.minimum(since / 0.01, 1)
        envelope = np.where(since > 0, decay, 0) * (since < length * 1.5)
        for harmonic in range(1, draws.randint(4, 10)):
            tone = np.sin(2 * np.pi * frequency * harmonic * since) * (frequency * harmonic < NOTES_RATE / 2)
            sound += draws.uniform(0.05, 0.2) / harmonic * envelope * tone
    return np.clip(sound, -1, 1).astype(np.float32)


def melody(index: int, samples: int) -> Array:
    """One voice with harmonics, vibrato and pauses, and a little noise, at SPEECH_RATE."""
    draws, noise = random.Random(9700 + index), np.random.default_rng(9700 + index)
    sound = noise.normal(0, 10 ** draws.uniform(-4.5, -2), samples)
    start = draws.randint(0, 3000)
    while start < samples:
        length = min(draws.randint(2000, 9000), samples - start)
        frequency = 440 * 2 ** ((draws.uniform(40, 76) - 69) / 12)
        times = np.arange(length) / SPEECH_RATE
        bend = 1 + draws.uniform(0, 0.012) * np.sin(2 * np.pi * draws.uniform(4, 7) * times)
        phase = 2 * np.pi * np.cumsum(frequency * bend) / SPEECH_RATE
        envelope = np.minimum(1, np.minimum(times, times[::-1]) / 0.02) * draws.uniform(0.05, 0.4)
        for harmonic in range(1, draws.randint(3, 12)):
            sound[start : start + length] += envelope * np.sin(harmonic * phase) / harmonic**1.2
        start += length + draws.choice([0, 0, draws.randint(500, 4000)])
    return np.clip(sound, -1, 1).astype(np.float32)


WAVES = {"melody": melody, "notes": notes, "speech": speech}

"""Builds the native kernel as a shared library beside the plugin. Without a compiler, the reference runs instead."""

from setuptools import Extension, setup

import tpuconvert as tc

kernel = Extension(
    "acme_tpu._channel_gate",
    ["acme_tpu/channel_gate.c"],
    include_dirs=[str(tc.include_folder())],
    optional=True,
)
setup(packages=["acme_tpu"], ext_modules=[kernel])

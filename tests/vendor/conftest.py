"""The vendor's compiler and simulator, where they are installed: ``make vendor-env`` does that."""

import os
from pathlib import Path

import pytest

from tests.support.vendor.vendor_tools import Vendor

VARIABLES = "TPU_MLIR_HOME and VENDOR_PYTHON are not set: see make vendor-env"


@pytest.fixture(scope="session")
def vendor() -> Vendor:
    home, python = os.environ.get("TPU_MLIR_HOME"), os.environ.get("VENDOR_PYTHON")
    if not home or not python:
        pytest.skip(VARIABLES)
    assert Path(home, "bin", "tpuc-opt").is_file(), f"TPU_MLIR_HOME is {home}, which has no bin/tpuc-opt"
    return Vendor(Path(home), python)


@pytest.fixture
def tpulang(vendor: Vendor) -> Vendor:
    """The compiler, if the packages of its TPULang API are installed too."""
    done = vendor.run([vendor.python, "-c", "import transform.TpuLang"], PYTHONPATH=f"{vendor.home}/python")
    if done.returncode:
        pytest.skip(f"{done.stderr.strip().splitlines()[-1]}: see make vendor-env")
    return vendor


@pytest.fixture(params=["tpu-mlir", "tpulang"])
def to(request: pytest.FixtureRequest) -> str:
    """Name of an export target of the compiler."""
    if request.param == "tpulang":
        request.getfixturevalue("tpulang")
    return str(request.param)

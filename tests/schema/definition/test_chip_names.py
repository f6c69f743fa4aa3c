"""Names of chips, of products that execute the operators of a chip, and of unsupported products."""

import json

import pytest

import tpuconvert as tc
from tests.support.networks.small_models import examples
from tpuconvert.__main__ import main
from tpuconvert.schema.definition.chip_names import parse_chip
from tpuconvert.schema.types import Chip

SOURCE = str(examples() / "digits.onnx")


@pytest.mark.parametrize("name", ["bm1684", "BM1684", "bm-1684", "Bm_1684", "bm 1684"])
def test_names_are_read_in_any_case_and_with_dashes(name: str) -> None:
    assert parse_chip(name) is Chip.BM1684


@pytest.mark.parametrize("name", ["bm1684x", "BM1684X", "BM-1684X", "bm1688", "BM1688"])
def test_products_that_execute_the_operators_of_another_chip(name: str) -> None:
    assert parse_chip(name) is Chip.BM1686
    assert tc.convert(SOURCE, chip=name).chip is Chip.BM1686


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("cv181x", "has other operators than bm1682"),
        ("CV183x", "has other operators than bm1682"),
        ("bm1690", "has other operators than bm1682"),
        ("sg2260", "has other operators than bm1682"),
        ("cv186x", "choose --chip bm1688"),
        ("CV186AH", "choose --chip bm1688"),
        ("SE7", "choose --chip bm1684x"),
        ("se5-16", "choose --chip bm1684"),
        ("sg2042", "has no TPU"),
        ("bm168", "did you mean 'bm168"),
        ("1684x", "did you mean 'bm1684x'"),
        ("tpu", "known are bm1682, bm1684, bm1686, bm1684x, bm1688"),
    ],
)
def test_unsupported_products_get_a_hint(name: str, answer: str) -> None:
    with pytest.raises(tc.UsageError, match=answer):
        tc.convert(SOURCE, chip=name)


def test_the_command_line_states_the_chip(capsys: pytest.CaptureFixture[str], tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["convert", SOURCE, "-o", "net.tpum", "--chip", "BM1684X", "--json"]) == 0
    shown = capsys.readouterr()
    assert "bm1684x executes the operators of BM1686" in shown.err
    assert json.loads(shown.out)["chip"] == "BM1686"
    assert main(["ops", "--chip", "bm1688"]) == 0
    assert "bm1688 executes the operators of BM1686" in capsys.readouterr().err
    assert main(["ops", "--chip", "cv186x"]) == 2
    assert "choose --chip bm1688" in capsys.readouterr().err

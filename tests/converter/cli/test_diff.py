"""``tpuconvert diff``: text, reports, limits and errors."""

import html.parser
import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.networks.planted_differences import residual_network, samples
from tpuconvert.__main__ import main

Captured = pytest.CaptureFixture[str]
NETWORK = residual_network()


@pytest.fixture
def files() -> None:
    """Two versions of a network, in which a bias and the size of a layer differ."""
    Path("before.onnx").write_bytes(NETWORK.proto().SerializeToString())
    other = NETWORK.with_constant("b4", lambda a: a + np.float32(0.25)).without("relu2")
    Path("after.onnx").write_bytes(other.proto().SerializeToString())
    NETWORK.convert().save("before.tpum")
    other.convert().save("after.tpum")
    np.save("x.npy", samples([1, 3, 8, 8]))


@pytest.mark.usefixtures("files")
class TestDiff:
    def test_equal(self, capsys: Captured) -> None:
        """A model has no difference from itself and from its source."""
        for other in ("before.tpum", "before.onnx"):
            assert main(["diff", "before.tpum", other, "--fail-on", "any"]) == 0
            assert capsys.readouterr().out.splitlines()[0] == f"before.tpum -> {other}: no differences"

    def test_text(self, capsys: Captured) -> None:
        assert main(["diff", "before.tpum", "after.tpum", "--data", "x.npy"]) == 0
        out = capsys.readouterr().out
        assert out.startswith("before.tpum -> after.tpum: 1 in nodes, 1 in constants")
        assert "removed 'relu2': active FLOAT32[1, 8, 8, 8]" in out
        assert "'conv3' tensor_bias: 8 of 8 elements differ, by at most 0.25, 0.25 on average" in out
        assert "outputs on 4 samples:" in out

    def test_markdown_lists_the_outputs_below_a_sentence(self) -> None:
        assert main(["diff", "before.tpum", "after.tpum", "--data", "x.npy", "--markdown", "text.md"]) == 0
        lines = Path("text.md").read_text(encoding="utf-8").splitlines()
        start = lines.index("Outputs on 4 samples:")
        assert lines[start - 1] == lines[start + 1] == ""
        assert lines[start + 2].startswith("- `'") and "cosine" in lines[start + 2]

    def test_a_limit_is_printed_as_it_was_given(self, capsys: Captured) -> None:
        assert main(["diff", "before.tpum", "after.tpum", "--data", "x.npy", "--min-cosine", "0.99999999"]) == 5
        assert "is below 0.99999999" in capsys.readouterr().err

    def test_random_numbers_are_no_measure_of_quantization(self, capsys: Captured) -> None:
        NETWORK.quantize().save("int8.tpum")
        advice = "random numbers are not what the ranges of an INT8 model are made for: give samples (--data)"
        shown = []
        for arguments in (["before.tpum", "int8.tpum"], ["before.tpum", "int8.tpum", "--data", "x.npy"]):
            assert main(["diff", *arguments, "--html", "page.html", "--markdown", "text.md"]) == 0
            page, text = (Path(name).read_text(encoding="utf-8") for name in ("page.html", "text.md"))
            shown.append([advice in capsys.readouterr().out, advice[1:] in page, advice in text])
        assert shown == [[True] * 3, [False] * 3]
        assert main(["diff", "before.tpum", "after.tpum"]) == 0
        assert advice not in capsys.readouterr().out

    @pytest.mark.parametrize("pair", [("before.onnx", "after.tpum"), ("before.onnx", "after.onnx")])
    def test_sources_have_the_same_differences(self, pair: tuple[str, str], capsys: Captured) -> None:
        assert main(["diff", *pair, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        told = [(c["category"], c["action"], c["name"]) for c in found["changes"]]
        assert told == [("nodes", "removed", "relu2"), ("constants", "changed", "conv3")]

    @pytest.mark.parametrize(
        ("limits", "message"),
        [
            (["--fail-on", "nodes"], "1 change in nodes, the first at 'relu2'"),
            (["--fail-on", "names,constants"], "1 change in constants, the first at 'conv3'"),
            (["--fail-on", "outputs"], "outputs differ: 'logits', 'mean'"),
            (["--fail-on", "any"], "1 change in nodes, the first at 'relu2'; 1 change in constants"),
            (["--max-difference", "1e-6"], "output 'logits': difference (share of the range)"),
            (["--min-cosine", "0.9999999"], "output 'logits': cosine"),
            (["--min-sqnr", "100"], "output 'logits': SQNR in dB"),
        ],
    )
    def test_limits(self, limits: list[str], message: str, capsys: Captured) -> None:
        assert main(["diff", "before.tpum", "after.tpum", *limits]) == 5
        assert f"error[TC5001]: after.tpum: {message}" in capsys.readouterr().err

    def test_growth(self, capsys: Captured) -> None:
        assert main(["diff", "before.tpum", "after.tpum", "--max-size-growth", "0%", "--max-cost-growth", "0.05"]) == 0
        assert main(["diff", "after.tpum", "before.tpum", "--max-size-growth", "0%"]) == 5
        assert "before.tpum: growth of file: " in capsys.readouterr().err
        NETWORK.convert(chip="bm1684").save("faster.tpum")
        assert main(["diff", "faster.tpum", "before.tpum", "--max-cost-growth", "5%"]) == 5
        assert "before.tpum: growth of least time on the chip: " in capsys.readouterr().err
        assert main(["diff", "before.onnx", "after.tpum", "--max-size-growth", "5%"]) == 2
        assert "the growth of file, which is not known for both models" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("arguments", "messages"),
        [
            (["before.tpum"], ["1 model where two are compared", "diff BEFORE [WEIGHTS] AFTER"]),
            (["before.tpum", "after.tpum", "x.onnx"], ["3 models where two are compared"]),
            (["before.tpum", "absent.tpum"], ["absent.tpum: no such file"]),
            (["before.tpum", "x.npy"], ["x.npy: not a model of a known format"]),
            (["before.tpum", "after.tpum", "--fail-on", "node"], ["did you mean 'nodes'?"]),
            (["before.tpum", "after.tpum", "--max-size-growth", "lots"], ["'lots' is not a growth", "5%"]),
            (["before.tpum", "after.tpum", "--samples", "0", "--min-cosine", "1"], ["not compared: not requested"]),
            (["before.tpum", "after.tpum", "--chip", "bm1684"], ["options of a source (chip), but no source"]),
            (["before.tpum", "after.tpum", "--html", "a.txt"], ["a.txt: a page ends in .html"]),
            (["before.tpum", "unsupported.onnx"], ["unsupported.onnx: 1 problem", "NoSuchOperator"]),
        ],
    )
    def test_errors(self, arguments: list[str], messages: list[str], capsys: Captured) -> None:
        other = NETWORK.with_layer("sigmoid", op="NoSuchOperator")
        Path("unsupported.onnx").write_bytes(other.proto().SerializeToString())
        Path("x.onnx").write_bytes(Path("before.onnx").read_bytes())
        assert main(["diff", *arguments]) in (2, 3, 4)
        error = capsys.readouterr().err
        assert all(message in error for message in messages), error

    def test_chip_of_the_other_model(self, capsys: Captured) -> None:
        """A source is converted for the chip of the model, unless an option states another one."""
        NETWORK.convert(chip="bm1684").save("other.tpum")
        assert main(["diff", "before.onnx", "other.tpum", "--fail-on", "any"]) == 0
        assert main(["diff", "before.onnx", "other.tpum", "--chip", "bm1686", "--fail-on", "any"]) == 0

    def test_different_inputs_are_not_run(self, capsys: Captured) -> None:
        Path("wide.onnx").write_bytes(_resized().SerializeToString())
        assert main(["diff", "before.onnx", "wide.onnx"]) == 0
        text = capsys.readouterr().out
        assert "outputs not compared: input 'x' is [1, 3, 8, 8] before and [1, 3, 10, 10] after" in text
        assert main(["diff", "before.onnx", "wide.onnx", "--fail-on", "outputs"]) == 2
        assert "give samples that fit both models" in capsys.readouterr().err


def _resized():  # type: ignore[no-untyped-def]
    from dataclasses import replace

    larger = NETWORK.with_constant("w5", lambda a: np.concatenate([a, a[: 8 * 9]]))
    return replace(larger, inputs={"x": [1, 3, 10, 10]}).proto()


HOSTILE = ("a`b``c](http://x)|\\|<img src=x onerror=alert(1)>", "@everyone <script>alert(1)</script>\n# title")


@pytest.fixture
def reports() -> tuple[str, str]:
    """HTML and Markdown of a comparison of networks with hostile names."""
    names = {"conv2": HOSTILE[0], "sum": HOSTILE[1], "relu2": f"{HOSTILE[0]}{HOSTILE[1]}"}
    before = NETWORK.renamed(lambda name: names.get(name, name))
    after = before.without(names["relu2"]).with_layer(names["conv2"], attributes={"pads": [1, 1, 1, 1], "group": 1})
    before.convert().save("before.tpum")
    after.renamed(lambda name: HOSTILE[1] * 2 if name == "pool" else name).convert().save("after.tpum")
    assert main(["diff", "before.tpum", "after.tpum", "--html", "page.html", "--markdown", "page.md"]) == 0
    return Path("page.html").read_text(encoding="utf-8"), Path("page.md").read_text(encoding="utf-8")


def test_html_has_no_markup_from_names(reports: tuple[str, str]) -> None:
    """The page has the scripts of every page, and links lead to nodes of the page."""
    tags: Counter[str] = Counter()
    addresses: list[str | None] = []

    def start(tag: str, attributes: list[tuple[str, str | None]]) -> None:
        tags[tag] += 1
        addresses.extend(value for name, value in attributes if name == "href")

    parser = html.parser.HTMLParser()
    parser.handle_starttag = start  # type: ignore[method-assign]
    parser.feed(reports[0])
    assert tags["script"] == 2
    assert tags["table"] > 0
    assert tags["img"] == 0
    assert all(address is not None and address.startswith("#") for address in addresses)
    assert any(address is not None and address.startswith("#m1n") for address in addresses)


def test_markdown_has_names_in_code_spans_only(reports: tuple[str, str]) -> None:
    """Without its code spans, whose delimiters are as long as on the other side, nothing of a name is left."""
    text = re.sub(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)", "", reports[1])
    assert "alert" not in text
    assert "@" not in text
    assert "http" not in text
    assert re.findall(r"<[^>]*>", text) == re.findall(r"</?(?:details|summary)>", text)
    assert not re.search(r"^# ", text, re.MULTILINE)


def test_python_result_prints_well() -> None:
    found = tc.diff(NETWORK.convert(), NETWORK.without("relu2").convert(), samples=1)
    assert repr(found) == "ModelDifference('<ModelProto>', '<ModelProto>': 1 nodes)"
    assert "removed 'relu2'" in str(found)
    assert "relu2" in found._repr_html_()
    assert found.to_dict()["counts"] == {"nodes": 1}
    assert not found.is_equal

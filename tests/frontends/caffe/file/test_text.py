"""The prototxt parser: what protobuf's own parser reads, and what only ours keeps."""

import math

import pytest
from google.protobuf import text_format

from tpuconvert.frontends.caffe.file.messages import new_message
from tpuconvert.frontends.caffe.file.text import TextSyntaxError, parse_text


def parse(text, max_depth=64):
    message = new_message("NetParameter")
    return message, parse_text(text, message, max_depth=max_depth)


def test_reads_every_published_network_as_protobuf_does(data_root):
    files = sorted((data_root / "caffe_prototxt").glob("*.prototxt"))
    files += sorted(data_root.glob("models/*/deploy.prototxt"))
    assert len(files) >= 52
    for file in files:
        text = file.read_text(encoding="utf-8")
        expected = text_format.Parse(text, new_message("NetParameter"))
        message, parsed = parse(text)
        assert message == expected, file.name
        assert parsed.unknown == []


@pytest.mark.parametrize(
    "text",
    [
        'name: "a\\"b\\n\\101\\x41" # comment',
        "name: 'one' \"two\"",
        "layer { relu_param { negative_slope: .5f } }, layer { relu_param { negative_slope: -1e-3 } };",
        "layer < name: 'x' >",
        "layer: { type: 'ReLU' }",
        "layer { loss_weight: [1, 2.5, -3] propagate_down: [true, false] propagate_down: True }",
        "input_dim: 0x10 input_dim: 017 input_dim: -3",
        "layer { pooling_param { pool: AVE } } layer { pooling_param { pool: 1 } }",
        "layer { relu_param { negative_slope: -inf } } layer { relu_param { negative_slope: INFINITY } }",
        "state { phase: TEST stage: 'a' stage: 'b' }",
        "layer [{ name: 'a' }, { name: 'b' }]",
        "input: [] layer []",
        "",
    ],
)
def test_agrees_with_protobuf(text):
    message, parsed = parse(text)
    assert message == text_format.Parse(text, new_message("NetParameter"))
    assert parsed.unknown == []


def test_nan_is_a_number():
    message, _ = parse("layer { relu_param { negative_slope: nan } }")
    assert math.isnan(message.layer[0].relu_param.negative_slope)


def test_unknown_fields_are_kept_with_their_line_and_content():
    message, parsed = parse(
        'name: "n"\nlayer {\n name: "a"\n  my_param {\n    k: 3\n    k: 0.5\n    deep < name: "x" on: true mode: FAST >'
        " }\n"
        "  convolution_param { num_output: 4 sparsity: [1, 2] }\n}\nextra: -2\n"
    )
    assert message.layer[0].convolution_param.num_output == 4
    found = [(item.path, item.line, item.value) for item in parsed.unknown]
    assert found == [
        (
            ("layer", 0, "my_param"),
            4,
            {"k": [3, 0.5], "deep": [{"name": ["x"], "on": [True], "mode": ["FAST"]}]},
        ),
        (("layer", 0, "convolution_param", "sparsity"), 8, [1, 2]),
        (("extra",), 10, -2),
    ]


def test_lines_of_layers_are_kept():
    _, parsed = parse('name: "n"\n\nlayer { name: "a" }\nlayer {\n}\n')
    assert parsed.lines == {("layer", 0): 3, ("layer", 1): 4}


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ('layer {\n  name "x"\n}', 2, 8, "expected ':' after 'name'"),
        ("layer {\n  name: x\n}", 2, 9, "takes a text in quotes"),
        ('layer {\n  name: "x"\n', 3, 1, "'layer' of line 1 is not closed"),
        ("layer {\n  name: 'x\n}", 2, 9, "unexpected"),
        ("layer { pooling_param { pool: MIN } }", 1, 31, "one of MAX, AVE, STOCHASTIC"),
        ("layer { pooling_param { pool: 7 } }", 1, 31, "one of MAX, AVE, STOCHASTIC"),
        ("layer { pooling_param { pad: -1 } }", 1, 30, "not a value of 'pad'"),
        ("layer { pooling_param { pad: 99999999999 } }", 1, 30, "not a value of 'pad'"),
        ("layer { pooling_param { pad: 1.5 } }", 1, 30, "takes an integer"),
        ("layer { pooling_param { global_pooling: 2 } }", 1, 41, "takes true or false"),
        ("name: 'a' name: 'b'", 1, 11, "'name' is given twice"),
        ("layer { relu_param { } relu_param { } }", 1, 24, "'relu_param' is given twice"),
        ("layer { relu_param: 3 }", 1, 21, "expected '{'"),
        ("input_dim: [1, 2", 1, 17, "expected ',' or ']', found the end of the file"),
        ("}", 1, 1, "expected the name of a field"),
        ("input_dim: " + "9" * 500, 1, 12, "500 digits"),
        ("layer { relu_param { negative_slope: - } }", 1, 40, "expected a number after '-'"),
        ("mine {\n a: 1", 2, 6, "'}' is missing"),
        ("layer { name: 'x' >", 1, 19, "expected the name of a field"),
    ],
)
def test_errors_name_line_and_column(text, line, column, words):
    with pytest.raises(TextSyntaxError, match=f"line {line}, column {column}: ") as error:
        parse(text)
    assert words in str(error.value)


@pytest.mark.parametrize(
    "inside", ["layer { convolution_param { weight_filler { } } }", "a { b { c { } } }", "a: [[[[[]]]]]"]
)
def test_nesting_is_bounded(inside):
    parse(inside)
    with pytest.raises(TextSyntaxError, match="nest deeper"):
        parse(inside, max_depth=1)


def test_deep_nesting_ends_before_the_stack_does():
    with pytest.raises(TextSyntaxError, match="nest deeper"):
        parse("a {" * 100_000)
    with pytest.raises(TextSyntaxError, match="nest deeper"):
        parse("a: " + "[" * 100_000)

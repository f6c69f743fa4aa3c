"""Write reports of six networks and screenshots of them: ``python -m tools.pages.report_views FOLDER [NAME ...]``.

The screenshots show a report as a reader first sees it: the top of the page and the graph, on a desktop and on a phone,
in the light and in the dark theme. Look at them after a change of the page. Converted models stay in FOLDER; a second
run makes only the pages and the screenshots. Needs the extra ``browser`` and a Chromium; the trained networks
and their samples come from ``tools.accuracy.trained``.
"""

from __future__ import annotations

import argparse
import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser

import tpuconvert as tc
from tests.support.networks.decoders import EXPLICIT, decoder
from tools.accuracy.trained.networks import Network
from tools.accuracy.trained.wheels import model_folder
from tools.pages.browser import open_browser
from tpuconvert.model.description import Description
from tpuconvert.report.html_page import to_html
from tpuconvert.report.report_description import describe_for_report

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
SIZES = {"desktop": (1440, 900), "phone": (390, 844)}
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
SAMPLES = 4
"""Number of samples of a trained network: the report needs plausible errors, not exact ones."""


@dataclass(frozen=True)
class Source:
    """A network and how it is converted.

    Args:
        source: its file.
        samples: calibration samples; None leaves the network in float.
        options: further keywords of ``convert``.
        is_attributed: whether the report has the error of each node at the outputs.

    """

    source: Path
    samples: Any = None
    options: Mapping[str, Any] | None = None
    is_attributed: bool = False


def _digits(_folder: Path) -> Source:
    options = {"preprocess": "color=GRAY,scale=0.0625"}
    return Source(DIGITS / "digits.onnx", DIGITS / "calibration.npz", options, is_attributed=True)


def _decoder(folder: Path) -> Source:
    path = folder / "decoder.onnx"
    path.write_bytes(decoder(EXPLICIT, layers=4).SerializeToString())
    return Source(path)


def _trained(name: str, *, is_attributed: bool = False) -> Callable[[Path], Source]:
    def prepare(folder: Path) -> Source:
        network = Network(name, folder, model_folder())
        return Source(network.source, network.calibration(0)[:SAMPLES], is_attributed=is_attributed)

    return prepare


NETWORKS: dict[str, Callable[[Path], Source]] = {
    "nudenet_320n": _trained("nudenet_320n", is_attributed=True),
    "rapidocr_det_v4": _trained("rapidocr_det_v4"),
    "silero_vad": _trained("silero_vad"),
    "mediapipe_face_short_range": _trained("mediapipe_face_short_range"),
    "digits": _digits,
    "decoder": _decoder,
}


def describe(name: str, folder: Path) -> Description:
    """Return the description of a network with its comparison and, if it is wanted, its attribution."""
    stored = folder / f"{name}.pickle"
    if stored.exists():
        description: Description = pickle.loads(stored.read_bytes())
        return description
    network = NETWORKS[name](folder)
    data = network.samples
    quantized = {} if data is None else {"quantize": "int8", "calibration": data}
    model = tc.convert(network.source, **quantized, **(network.options or {}))
    verification = None if data is None else tc.verify(model, network.source, data=data, oracle="none")
    parts = {}
    if network.is_attributed:
        parts["attribution"] = tc.attribute(model, network.source, data=data, measured_rules=0).to_dict()
    description = describe_for_report(model, verification, **parts)
    stored.write_bytes(pickle.dumps(description))
    return description


def take(browser: Browser, report: Path, device: str, theme: Literal["light", "dark"]) -> list[Path]:
    """Write the screenshots of a report for one device and theme. Return their files."""
    width, height = SIZES[device]
    stem = report.with_suffix("")
    files = [stem.with_name(f"{stem.name}-{device}-{theme}-{part}.png") for part in ("top", "graph")]
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=theme, reduced_motion="reduce")
    try:
        page.goto(report.as_uri())
        page.wait_for_selector("html.started")
        page.wait_for_timeout(300)  # the graph is painted in an animation frame
        page.screenshot(path=files[0])
        page.locator("#view-graph").screenshot(path=files[1])
    finally:
        page.close()
    return files


def main() -> int:
    """Write the reports and the screenshots."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder of all files")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"only these of {', '.join(NETWORKS)}")
    arguments = parser.parse_args()
    folder: Path = arguments.folder.resolve()
    names = arguments.names or list(NETWORKS)
    if unknown := set(names) - set(NETWORKS):
        parser.error(f"unknown network {', '.join(sorted(unknown))}; expected {', '.join(NETWORKS)}")
    folder.mkdir(parents=True, exist_ok=True)
    with open_browser() as browser:
        for name in names:
            report = folder / f"{name}.html"
            report.write_text(to_html(describe(name, folder)), encoding="utf-8")
            for device in SIZES:
                for theme in THEMES:
                    for file in take(browser, report, device, theme):
                        print(file.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())

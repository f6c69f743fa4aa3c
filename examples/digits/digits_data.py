"""Read ``digits.npz``: images in the value range of the network, in three disjoint parts."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

FOLDER = Path(__file__).parent
PARTS = ("train", "calibration", "test")


@dataclass(frozen=True)
class Part:
    """Images of one part, with their labels.

    Shapes: images [N, 1, 8, 8] (NCHW), labels [N].
    Units: the stored counts 0 to 16 divided by 16, so 0 is paper and 1 is ink.
    """

    images: npt.NDArray[np.float32]
    labels: npt.NDArray[np.uint8]


def load_part(name: str, path: Path = FOLDER / "digits.npz") -> Part:
    """Loads the images of ``train``, ``calibration`` or ``test``."""
    if name not in PARTS:
        raise ValueError(f"no part named {name!r}; there are {', '.join(PARTS)}")
    with np.load(path) as archive:
        chosen = archive[name]
        counts = archive["images"][chosen]
        labels = archive["labels"][chosen]
    return Part((counts[:, None] / np.float32(16)).astype(np.float32), labels)

"""What the papers report of the methods that run here, to stand beside the figures measured.

Their models, pictures and machines are others, so only the columns that are ratios compare: steps and time against
plain decoding of the same model, distance against its distance, and the share of tokens that the cloud handles.
Every figure was taken from a published note on the paper, none from its own tables at first hand.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from pixdraft.decoding import acceptance
from pixdraft.trials.draw_many import Method
from pixdraft.trials.methods import Described, parse

CSD = "CSD, arXiv 2606.27829, MS-COCO 2017 val, one A6000"
CIAR = "CIAR, arXiv 2603.25463, MS-COCO val captions"
STAGE_I, STAGE_II = "LlamaGen-XL stage I, 256 px", "LlamaGen-XL stage II, 512 px"
STANDING = "stated in a published note on the paper"


@dataclass(frozen=True)
class Figure:
    """One line of a paper's table.

    Attributes:
        method: as it would be run here; it holds for every method that agrees with all it says.
        model: the target that the paper ran.
        source: paper, data and machine.
        steps: passes of the target a picture.
        step_x, latency_x: plain decoding's steps and time over this method's.
        fid, base_fid: Frechet inception distance of this method and of plain decoding.
        clip: CLIP score, 0 to 100.
        f1: of precision and recall.
        hpsv2: human preference score.
        cloud_share: tokens that the cloud handles / T.
        standing: how the figure came here.
    """

    method: str
    model: str
    source: str
    steps: float | None = None
    step_x: float | None = None
    latency_x: float | None = None
    fid: float | None = None
    base_fid: float | None = None
    clip: float | None = None
    f1: float | None = None
    hpsv2: float | None = None
    cloud_share: float | None = None
    standing: str = STANDING

    @property
    def fid_x(self) -> float | None:
        """Its distance over plain decoding's."""
        return None if self.fid is None or self.base_fid is None else self.fid / self.base_fid


Judged = tuple[float, float, float]  # CLIP score, F1, HPSv2


def _lumina(method: str, steps: float, latency_x: float, step_x: float, fid: float | None, clip: float) -> Figure:
    base_fid = None if fid is None else 30.90
    return Figure(method, "Lumina-mGPT 7B, 768 px", CSD, steps, step_x, latency_x, fid, base_fid, clip)


def _janus(
    method: str, size: str, seconds: float, steps: float, fid: float | None = None, clip: float | None = None
) -> Figure:
    step_x, latency_x = round(576 / steps, 2), round({"1B": 15.29, "7B": 22.95}[size] / seconds, 2)
    base_fid = None if fid is None else 33.82
    return Figure(method, f"Janus-Pro {size}, 384 px", CSD, steps, step_x, latency_x, fid, base_fid, clip)


def _ciar(
    method: str,
    latency_x: float,
    cloud_share: float,
    fid: float,
    judged: Judged | None = None,
    model: str = STAGE_I,
    base_fid: float = 23.69,
) -> Figure:
    clip, f1, hpsv2 = judged or (None, None, None)
    return Figure(method, model, CIAR, None, None, latency_x, fid, base_fid, clip, f1, hpsv2, cloud_share)


_OWN_SETTING = "sjd:coupling=none + csd:lam=0.5"  # of CSD, less its delta
_PLAIN = "sjd:coupling=none"

FIGURES: tuple[Figure, ...] = (
    _lumina("cloud", 2379, 1.0, 1.0, 30.90, 31.31),
    _lumina("eagle2", 809.2, 2.10, 2.94, None, 33.3),
    _lumina("eagle2 + lantern", 655.4, 2.56, 3.63, None, 32.7),
    _lumina("jd:coupling=none", 2273.4, 1.03, 1.05, 30.89, 31.31),
    _lumina(_PLAIN, 1061.9, 2.26, 2.24, 30.92, 31.31),
    _lumina(f"{_PLAIN} + amplify:factor=1.3", 921.1, 2.54, 2.58, 33.03, 31.24),
    _lumina(f"{_PLAIN} + addition:epsilon=0.1", 909.3, 2.52, 2.62, 32.93, 31.27),
    _lumina(f"{_PLAIN} + gsd:group=3", 925.2, 2.53, 2.57, 31.61, 31.33),
    _lumina(f"{_OWN_SETTING},delta=0.35", 922.8, 2.60, 2.58, 31.66, 31.49),
    _janus("cloud", "1B", 15.29, 576),
    _janus(_PLAIN, "1B", 7.86, 303.8),
    _janus(f"{_OWN_SETTING},delta=0.35", "1B", 7.10, 270.9),
    _janus(f"{_OWN_SETTING},delta=0.65", "1B", 4.56, 173.0),
    _janus("cloud", "7B", 22.95, 576, 33.82, 32.31),
    _janus("jd:coupling=none", "7B", 21.37, 537.6),
    _janus(_PLAIN, "7B", 11.64, 298.8, 33.85, 32.28),
    _janus(f"{_PLAIN} + amplify:factor=4", "7B", 7.05, 165.7, 34.01, 32.20),
    _janus(f"{_PLAIN} + addition:epsilon=0.4", "7B", 7.13, 162.8, 33.96, 32.16),
    _janus(f"{_PLAIN} + gsd:group=35", "7B", 6.93, 161.7, 34.00, 32.16),
    _janus(f"{_OWN_SETTING},delta=0.65", "7B", 6.53, 166.1, 33.69, 32.28),
    _janus(f"{_OWN_SETTING},delta=0.8", "7B", 5.30, 134.3, 33.58, 32.21),
    _ciar("cloud", 1.0, 1.0, 23.69, (31.61, 0.6097, 22.74)),
    _ciar("eagle2 + lantern", 1.66, 0.5011, 25.55, (31.59, 0.5834, 21.29)),
    _ciar("code:share=0.3", 2.04, 0.30, 35.67, (28.27, 0.4625, 18.08)),
    _ciar("ciar:statistic=interval", 2.53, 0.3044, 24.25, (31.59, 0.5997, 22.48)),
    _ciar("ciar:statistic=random", 2.28, 0.3646, 30.19),
    _ciar("ciar:statistic=entropy", 1.70, 0.5234, 24.58),
    _ciar("ciar:statistic=softmaxcorr", 2.27, 0.3649, 31.10),
    _ciar("cloud", 1.0, 1.0, 40.07, (28.22, 0.5350, 23.84), STAGE_II, 40.07),
    _ciar("ciar:statistic=interval", 2.13, 0.3446, 39.31, (29.27, 0.5458, 23.26), STAGE_II, 40.07),
    _ciar("cloud", 1.0, 1.0, 19.95, (32.15, 0.6544, 23.52), "Anole", 19.95),
    _ciar("ciar:statistic=interval", 1.87, 0.2988, 23.86, (31.71, 0.5970, 23.14), "Anole", 19.95),
)


def beside(method: Method) -> list[Figure]:
    """The figures that a method may stand beside: all it was published with, on every model."""
    return [figure for figure in FIGURES if _agrees(parse(figure.method), method)]


def _agrees(said: Described, method: Method) -> bool:
    """Whether a method is as a figure says; what neither says is compared by its default."""
    rule = method.request.get("rule", {"name": "lossless", "parameters": {}})
    if (said.policy, said.rule) != (method.policy, rule["name"]):
        return False
    policy = method.ask_for("a prompt", 0).policy
    if any(getattr(policy, name, None) != value for name, value in said.parameters.items()):
        return False
    given = _defaults(said.rule) | rule["parameters"]
    return all(given.get(name) == value for name, value in said.rule_parameters.items())


def _defaults(rule: str) -> dict[str, Any]:
    kind: Any = acceptance.RULES[rule]
    return {f.name: f.default for f in fields(kind)}

"""Drawn pictures (SVG): what a reader without JavaScript, a printer or a ticket sees. One file a picture."""

from iowatch.dashboard.pictures.curves import Curve, curves_picture
from iowatch.dashboard.pictures.fan import NARROW, Line, Name, fan_picture
from iowatch.dashboard.pictures.forest import forest_axis, forest_picture, forest_scale, samples_picture
from iowatch.dashboard.pictures.member import member_picture
from iowatch.dashboard.pictures.series import Mark, axis_top, drawn_limits, grouped, series_picture
from iowatch.dashboard.pictures.strip import strip_picture

__all__ = [
    "NARROW",
    "Curve",
    "Line",
    "Mark",
    "Name",
    "axis_top",
    "curves_picture",
    "drawn_limits",
    "fan_picture",
    "forest_axis",
    "forest_picture",
    "forest_scale",
    "grouped",
    "member_picture",
    "samples_picture",
    "series_picture",
    "strip_picture",
]

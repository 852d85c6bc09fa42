"""Drawn pictures (SVG): what a reader without JavaScript, a printer or a ticket sees. One file a picture."""

from iowatch.dashboard.pictures.curves import Curve, curve_kinds, curves_picture
from iowatch.dashboard.pictures.fan import NARROW, Line, Name, fan_picture
from iowatch.dashboard.pictures.forest import forest_axis, forest_picture, forest_scale, samples_picture
from iowatch.dashboard.pictures.member import member_picture
from iowatch.dashboard.pictures.ranges import Range, ranges_picture
from iowatch.dashboard.pictures.series import Mark, axis_top, drawn_limits, grouped, series_picture
from iowatch.dashboard.pictures.strip import strip_picture

__all__ = [
    "NARROW",
    "Curve",
    "Line",
    "Mark",
    "Name",
    "Range",
    "axis_top",
    "curve_kinds",
    "curves_picture",
    "drawn_limits",
    "fan_picture",
    "forest_axis",
    "forest_picture",
    "forest_scale",
    "grouped",
    "member_picture",
    "ranges_picture",
    "samples_picture",
    "series_picture",
    "strip_picture",
]

"""Public points for Algorithm 2, by the path they have always had."""

from persfl.public_points import made_up, public_points

__all__ = ["made_up", "public_points"]

"""A fit in the forms that other tools read: an ONNX graph, a plain estimator, a model card."""

from persfl.exports.onnx_file import onnx_fleet
from persfl.exports.plain_device import plain_estimator

__all__ = ["onnx_fleet", "plain_estimator"]

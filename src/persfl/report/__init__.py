"""The report: plain numbers (`info`), one self-contained page (`write_report`), matplotlib
`figures`, and `export`s.
"""

from persfl.report.html import write_report
from persfl.report.info import info

__all__ = ["info", "write_report"]

"""The report: a fitted model as one self-contained page, to be read, tried, edited and signed."""

from rbr.report.write import report_page, show_report, write_report

__all__ = ["report_page", "show_report", "write_report"]

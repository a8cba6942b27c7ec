"""`holdfast doctor`: finds what is wrong with our database, or soon will be. It changes nothing."""

from holdfast.doctor.examine import examine
from holdfast.doctor.finding import CODES, Finding, Level, Thresholds

__all__ = ["CODES", "Finding", "Level", "Thresholds", "examine"]

"""The doctor: looks for what is wrong with a database of ours, or soon will be. Changes nothing."""

from holdfast.doctor.examine import examine
from holdfast.doctor.finding import CODES, Finding, Level, Limits

__all__ = ["CODES", "Finding", "Level", "Limits", "examine"]

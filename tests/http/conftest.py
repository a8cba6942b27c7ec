from tests.http.asking import ask, tasked
from tests.running import hasty, heard, hf, make_app

__all__ = ["ask", "hasty", "heard", "hf", "make_app", "tasked"]

from tests.running import hasty, heard, hf, make_app

__all__ = ["hasty", "heard", "hf", "make_app"]

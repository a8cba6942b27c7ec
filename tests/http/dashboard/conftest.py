from tests.http.dashboard.looking import looking, viewing

__all__ = ["looking", "viewing"]

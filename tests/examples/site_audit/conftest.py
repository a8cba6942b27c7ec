from tests.examples.site_audit.application import ask, hf, sites, sql, start, url

__all__ = ["ask", "hf", "sites", "sql", "start", "url"]

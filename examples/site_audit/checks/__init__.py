"""What is checked without a browser, one small function each. Importing this declares them all."""

from examples.site_audit.checks import accessibility, performance, security, seo

__all__ = ["accessibility", "performance", "security", "seo"]

"""The dashboard: pages for people, at the root of the HTTP application. `pages.py` has the table of all pages and of
what their forms do, start there; `site.py` answers requests, `views.py` loads each page once for all who look at it."""

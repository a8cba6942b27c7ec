// Before anything is drawn: the colours that somebody chose, where the browser remembers any.
"use strict";
try {
  const theme = localStorage.getItem("holdfast-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* storage is off: the system's colours */ }

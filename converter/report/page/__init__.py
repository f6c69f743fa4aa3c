"""The interactive report: style sheets, scripts, and the functions that assemble the page."""

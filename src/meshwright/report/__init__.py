"""Terminal tables and the HTML page."""

"""Terminal tables and the HTML page.

- nouns: `document` (sections of tables, figures, drawings, lines); `pages`: one file for each kind of page
- what pages show: `sections`, `figures`, `lanes`, `grid`, `links`, `paths`, `ranks`, `waits`, `ran`, `curve`,
  `compare`, `blame`; `words`, `colours`, `sampling`
- out: `page` (HTML and JSON), `terminal`, `narrow`; `planning`, `job` and `calibration` print for `plan`
"""

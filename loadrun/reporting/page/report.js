const data = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement;

// Light or dark: as the viewer has it, until the button is pressed. Print is always light.
const wish = matchMedia("(prefers-color-scheme: dark)");
let chosen = null;
const paint = (dark) => root.classList.toggle("dark", dark);
paint(wish.matches);
wish.addEventListener("change", () => { if (chosen === null) paint(wish.matches); });
document.getElementById("scheme").addEventListener("click", () => {
  chosen = !root.classList.contains("dark");
  paint(chosen);
});

// On paper everything is open.
let shut = [];
addEventListener("beforeprint", () => {
  shut = [...document.querySelectorAll("details:not([open])")];
  for (const item of shut) item.open = true;
  paint(false);
});
addEventListener("afterprint", () => {
  for (const item of shut) item.open = false;
  paint(chosen ?? wish.matches);
});

document.getElementById("save").addEventListener("click", () => {
  const one = data.documents.length === 1 ? data.documents[0] : data.documents;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(one, null, 1)], { type: "application/json" }));
  link.download = "loadrun.json";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
});

// Tables: a head sorts by its column; numbers by their value, others by their text.
const sort = (head) => {
  const table = head.closest("table");
  const body = table.tBodies[0];
  const place = head.cellIndex;
  const falls = head.getAttribute("aria-sort")
    ? head.getAttribute("aria-sort") === "ascending"
    : head.classList.contains("num");
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", falls ? "descending" : "ascending");
  const key = (row) => {
    const cell = row.cells[place];
    return "v" in cell.dataset ? Number(cell.dataset.v) : cell.textContent;
  };
  const known = (k) => k !== "" && k !== "n/a" && !Number.isNaN(k);
  const order = (a, b) => (typeof a === "number" && typeof b === "number"
    ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true }));
  const rows = [...body.rows].map((row) => [key(row), row]);
  rows.sort(([a], [b]) => known(b) - known(a) || (falls ? order(b, a) : order(a, b)));
  body.append(...rows.map(([, row]) => row));
};
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => sort(button.closest("th")));
}

// Charts: what the pointer is on, in words.
const time = (ns) => {
  const [size, unit] = ns >= 1e9 ? [1e9, "s"] : ns >= 1e6 ? [1e6, "ms"] : ns >= 1e3 ? [1e3, "us"] : [1, "ns"];
  return `${(ns / size).toPrecision(4)} ${unit}`;
};
for (const figure of document.querySelectorAll("figure.chart")) {
  const readout = figure.querySelector(".readout");
  const svg = figure.querySelector("svg");
  const lines = (svg.dataset.values ?? "").split(";").filter(Boolean)
    .map((text) => text.split(",").map(Number));
  const tell = (event) => {
    const label = event.target.closest?.("[data-label]");
    if (label) { readout.textContent = label.dataset.label; return; }
    if (!lines.length) return;
    const box = svg.getBoundingClientRect();
    const part = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
    const run = Math.round(part * Number(svg.dataset.xHigh));
    const found = lines.map((line) => (line[run] === undefined ? "" : time(line[run])));
    readout.textContent = `run ${run}: ${found.filter(Boolean).join(", ")}`;
  };
  svg.addEventListener("pointermove", tell);
  svg.addEventListener("pointerdown", tell);
  svg.addEventListener("pointerleave", () => { readout.textContent = ""; });
}

// The graph is made when it is asked for: a page opens at once however large the model is.
const show = document.getElementById("show-graph");
if (show && data.graph) {
  show.addEventListener("click", () => {
    const frame = document.getElementById("graph-frame");
    frame.hidden = false; // first, so that the picture knows how wide it is
    frame.srcdoc = data.graph;
    show.hidden = true;
  });
}

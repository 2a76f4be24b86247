// Pointers, keys, buttons; the start.

const pointers = new Map();
let moved = false;
let spread = 0;

function at(event) {
  const area = scene.getBoundingClientRect();
  return [event.clientX - area.left, event.clientY - area.top];
}

scene.addEventListener("pointerdown", (event) => {
  scene.setPointerCapture(event.pointerId);
  pointers.set(event.pointerId, at(event));
  moved = pointers.size > 1;
  spread = 0;
  hover(null);
});
scene.addEventListener("pointermove", (event) => {
  const [x, y] = at(event);
  const before = pointers.get(event.pointerId);
  if (!before) {
    if (event.pointerType === "mouse") hover(boxAt(x, y), event.clientX, event.clientY);
    return;
  }
  if (pointers.size === 1) {
    if (!moved && Math.hypot(x - before[0], y - before[1]) < 4) return;
    moved = true;
    scene.classList.add("drags");
    move(before[0] - x, before[1] - y);
  }
  pointers.set(event.pointerId, [x, y]);
  if (pointers.size === 2) pinch(before, [x, y]);
});

function pinch(before, now) {
  const [[ax, ay], [bx, by]] = [...pointers.values()];
  const wide = Math.hypot(ax - bx, ay - by);
  move((before[0] - now[0]) / 2, (before[1] - now[1]) / 2);
  if (spread > 0) zoom(wide / spread, (ax + bx) / 2, (ay + by) / 2);
  spread = wide;
}

function release(event) {
  pointers.delete(event.pointerId);
  scene.classList.remove("drags");
  spread = 0;
}
// The details move what lies below them: not before the click that opens them is over, which
// would otherwise hit what has come to lie under the finger.
scene.addEventListener("click", (event) => {
  if (moved) return;
  const box = boxAt(...at(event));
  if (box) choose(box, box.op, { stay: true });
  else choose(null);
});
scene.addEventListener("pointerup", release);
scene.addEventListener("pointercancel", release);
scene.addEventListener("pointerleave", () => hover(null));
scene.addEventListener("wheel", (event) => {
  event.preventDefault();
  hover(null);
  const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? size.h : 1;
  if (event.ctrlKey || event.metaKey) {
    zoom(Math.exp(-event.deltaY * unit * 0.0022), ...at(event));
  } else {
    const across = event.shiftKey && !event.deltaX;
    move((across ? event.deltaY : event.deltaX) * unit, (across ? 0 : event.deltaY) * unit);
  }
}, { passive: false });
map.addEventListener("pointerdown", (event) => {
  map.setPointerCapture(event.pointerId);
  mapTo(event);
});
map.addEventListener("pointermove", (event) => {
  if (map.hasPointerCapture(event.pointerId)) mapTo(event);
});

// -- keys ------------------------------------------------------------------------------------

function step(key) {
  const box = shown.chosen;
  if (key === "ArrowUp" || key === "ArrowDown") {
    const up = key === "ArrowUp";
    const near = box.wires.filter((w) => (up ? w.target : w.source) === box.i)
      .map((w) => boxes[up ? w.source : w.target]);
    // The nearest rank first: along the main chain rather than a long wire.
    near.sort((a, b) => (up ? b.y - a.y : a.y - b.y));
    return near[0] || null;
  }
  const right = key === "ArrowRight";
  let best = null;
  for (const other of boxes) {
    const level = other.y < box.y + box.h && other.y + other.h > box.y;
    const distance = right ? other.x - box.x : box.x - other.x;
    if (other === box || !level || distance <= 0) continue;
    if (!best || distance < Math.abs(best.x - box.x)) best = other;
  }
  return best;
}

function forget() {
  if ($("query").value) endSearch();
  else if (shown.chosen || !$("panel").hidden) choose(null);
  else if (shown.family !== null) {
    shown.family = null;
    fillLegend();
    redraw();
  }
  scene.focus();
}

function scheme() {
  document.documentElement.classList.toggle("dark");
  readColours();
  fillLegend();
  redraw();
}

const help = $("help");
const actions = {
  "+": () => zoom(1.25), "=": () => zoom(1.25), "-": () => zoom(0.8),
  f: showAll, 0: showAll, 1: () => zoom(1 / eye.scale), t: scheme,
  "/": () => { $("query").focus(); $("query").select(); },
  n: () => toMatch(match + 1), p: () => toMatch(match < 0 ? -1 : match - 1),
  "?": () => help.showModal(),
  Home: () => boxes.length && choose(boxes[0]),
  Enter: () => { if (!$("panel").hidden) $("panel").focus(); },
};

function arrow(event) {
  const distance = 60;
  const by = {
    ArrowUp: [0, -distance], ArrowDown: [0, distance],
    ArrowLeft: [-distance, 0], ArrowRight: [distance, 0],
  }[event.key];
  if (!by) return false;
  const next = shown.chosen && !event.shiftKey ? step(event.key) : null;
  if (next) choose(next);
  else if (!shown.chosen || event.shiftKey) move(...by);
  return true;
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  if (event.key === "Escape") {
    event.preventDefault();
    forget();
    return;
  }
  const on = event.target;
  if (on instanceof HTMLInputElement) {
    if (event.key === "Enter") toMatch(event.shiftKey ? match - 1 : match + 1);
    return;
  }
  const onScene = on === scene || on === document.body;
  if (onScene && arrow(event)) event.preventDefault();
  else if (actions[event.key] && (onScene || !["Enter", "Home"].includes(event.key))) {
    event.preventDefault();
    actions[event.key]();
  }
});

// -- the start -------------------------------------------------------------------------------

$("in").addEventListener("click", () => zoom(1.25));
$("out").addEventListener("click", () => zoom(0.8));
$("fit").addEventListener("click", showAll);
$("scheme").addEventListener("click", scheme);
$("ask").addEventListener("click", () => help.showModal());
$("close").addEventListener("click", () => { choose(null); scene.focus(); });
$("query").addEventListener("input", search);

$("subtitle").textContent = data.subtitle;
if (data.problems.length) {
  $("problems").hidden = false;
  $("problems").textContent = data.problems.join("\n");
}
scene.setAttribute("aria-label", `Graph: ${data.subtitle}`);
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
function follow() {
  document.documentElement.classList.toggle("dark", prefersDark.matches);
  readColours();
  fillLegend();
  redraw();
}
prefersDark.addEventListener("change", follow);
follow();
resize();
showStart();
new ResizeObserver(resize).observe($("stage"));

// For scripts that drive the page: where a box is shown, in pixels of the window.
window.graphView = Object.freeze({
  boxes: boxes.length,
  wires: wires.length,
  scale: () => eye.scale,
  eye: () => ({ ...eye }),
  chosen: () => (shown.chosen ? shown.chosen.i : null),
  matches: () => matches.map((b) => b.i),
  title: (i) => boxes[i].title,
  lines: (i) => boxes[i].lines,
  centre: (i) => centre(boxes[i]),
  rect(i) {
    const area = scene.getBoundingClientRect(), b = boxes[i];
    return {
      x: area.left + (b.x - eye.x) * eye.scale, y: area.top + (b.y - eye.y) * eye.scale,
      w: b.w * eye.scale, h: b.h * eye.scale,
    };
  },
});

// The picture: what is where, drawing, and the way between page and picture coordinates.
// A point p of the picture is shown at ((p.x - eye.x) * eye.scale, (p.y - eye.y) * eye.scale).

const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const FONT = 'system-ui, "Segoe UI", Roboto, "Noto Sans", sans-serif';
const KINDS = ["operator", "input", "output", "weight"];

const boxes = data.boxes.map(([kind, op, family, title, lines, name, x, y, w, h], i) => ({
  i, kind: KINDS[kind], op, family, title, lines, name, x, y, w, h, wires: [],
}));
const wires = data.wires.map(([source, target, label, p]) => {
  let left = p[0], right = p[0];
  for (let i = 0; i < p.length; i += 2) {
    left = Math.min(left, p[i]);
    right = Math.max(right, p[i]);
  }
  return { source, target, label, p, left, right, top: p[1], bottom: p[p.length - 1] };
});
for (const wire of wires) {
  boxes[wire.source].wires.push(wire);
  boxes[wire.target].wires.push(wire);
}
const boxOf = new Map();
for (const box of boxes) if (box.kind !== "output") boxOf.set(box.op, box);

const scene = $("scene");
const pen = scene.getContext("2d");
const eye = { x: 0, y: 0, scale: 1 };
const shown = { over: null, chosen: null, matches: null, family: null };
let colours = {};
let size = { w: 1, h: 1 };
let waiting = false;

function readColours() {
  const style = getComputedStyle(document.documentElement);
  const dark = document.documentElement.classList.contains("dark");
  colours = { families: data.families.map((f) => (dark ? f.dark : f.light)) };
  for (const name of ["ground", "raised", "box", "ink", "soft", "line", "edge", "accent", "use"]) {
    colours[name] = style.getPropertyValue("--" + name).trim();
  }
}

function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    draw();
    drawMap();
  });
}

function resize() {
  const area = $("stage").getBoundingClientRect();
  const ratio = window.devicePixelRatio || 1;
  size = { w: Math.max(area.width, 1), h: Math.max(area.height, 1) };
  scene.width = Math.round(size.w * ratio);
  scene.height = Math.round(size.h * ratio);
  sizeMap();
  redraw();
}

// -- moving ----------------------------------------------------------------------------------

const fitScale = () => Math.min((size.w - 24) / data.width, (size.h - 56) / data.height);

function bound() {
  const low = Math.min(0.1, fitScale() * 0.8);
  eye.scale = Math.min(4, Math.max(low, eye.scale));
  const w = size.w / eye.scale, h = size.h / eye.scale;
  eye.x = Math.min(data.width - w * 0.25, Math.max(-w * 0.75, eye.x));
  eye.y = Math.min(data.height - h * 0.25, Math.max(-h * 0.75, eye.y));
  redraw();
}

function move(dx, dy) {
  eye.x += dx / eye.scale;
  eye.y += dy / eye.scale;
  bound();
}

function zoom(factor, x = size.w / 2, y = size.h / 2) {
  const before = eye.scale;
  const low = Math.min(0.1, fitScale() * 0.8);
  eye.scale = Math.min(4, Math.max(low, before * factor));
  eye.x += x / before - x / eye.scale;
  eye.y += y / before - y / eye.scale;
  bound();
}

function showAll() {
  eye.scale = Math.min(1.5, fitScale());
  eye.x = (data.width - size.w / eye.scale) / 2;
  eye.y = (data.height - (size.h - 40) / eye.scale) / 2;
  bound();
}

function showStart() {
  eye.scale = Math.min(1, Math.max(fitScale(), Math.min(1, (size.w - 24) / data.width), 0.6));
  const first = boxes.find((b) => b.kind === "input") || boxes[0];
  const middle = first ? first.x + first.w / 2 : data.width / 2;
  const wide = data.width * eye.scale <= size.w;
  eye.x = (wide ? data.width / 2 : middle) - size.w / eye.scale / 2;
  eye.y = 0;
  if (data.height * eye.scale < size.h - 40) {
    eye.y = -((size.h - 40) / eye.scale - data.height) / 2;
  }
  if (first && first.y > eye.y + size.h / eye.scale - first.h) eye.y = first.y - 40;
  bound();
}

function centre(box) {
  if (eye.scale < 0.45) eye.scale = 0.9;
  eye.x = box.x + box.w / 2 - size.w / eye.scale / 2;
  eye.y = box.y + box.h / 2 - size.h / eye.scale / 2;
  bound();
}

// Move just so far that a box is not under the edge, the legend or the details.
function show(box) {
  const pad = 16 / eye.scale, low = 60 / eye.scale;
  const right = eye.x + size.w / eye.scale - pad, bottom = eye.y + size.h / eye.scale - low;
  if (box.x + box.w > right) eye.x += box.x + box.w - right;
  if (box.x - pad < eye.x) eye.x = box.x - pad;
  if (box.y + box.h > bottom) eye.y += box.y + box.h - bottom;
  if (box.y - pad < eye.y) eye.y = box.y - pad;
  bound();
}

// Rows of the picture with the boxes that touch them, to find the one under the pointer.
const ROW = 128;
const rows = new Map();
for (const box of boxes) {
  for (let r = Math.floor(box.y / ROW); r <= Math.floor((box.y + box.h) / ROW); r++) {
    if (!rows.has(r)) rows.set(r, []);
    rows.get(r).push(box);
  }
}

function boxAt(px, py) {
  const x = eye.x + px / eye.scale, y = eye.y + py / eye.scale;
  const slack = eye.scale < 0.5 ? 3 / eye.scale : 0;
  const near = rows.get(Math.floor(y / ROW)) || [];
  return near.find((b) => x >= b.x - slack && x <= b.x + b.w + slack &&
    y >= b.y - slack && y <= b.y + b.h + slack) || null;
}

// -- drawing ---------------------------------------------------------------------------------

function isDim(box) {
  if (shown.family !== null && box.family !== shown.family) return true;
  return shown.matches !== null && !shown.matches.has(box.i);
}

function draw() {
  const ratio = window.devicePixelRatio || 1;
  const k = eye.scale * ratio;
  pen.setTransform(1, 0, 0, 1, 0, 0);
  pen.fillStyle = colours.ground;
  pen.fillRect(0, 0, scene.width, scene.height);
  pen.setTransform(k, 0, 0, k, -eye.x * k, -eye.y * k);
  const view = {
    left: eye.x, top: eye.y, right: eye.x + size.w / eye.scale, bottom: eye.y + size.h / eye.scale,
  };
  drawWires(view);
  const filtered = shown.matches !== null || shown.family !== null;
  for (const box of boxes) {
    if (box.x > view.right || box.x + box.w < view.left) continue;
    if (box.y > view.bottom || box.y + box.h < view.top) continue;
    pen.globalAlpha = filtered && isDim(box) ? 0.22 : 1;
    drawBox(box);
  }
  pen.globalAlpha = 1;
  for (const box of new Set([shown.over, shown.chosen])) if (box) drawMark(box);
}

function trace(p) {
  pen.moveTo(p[0], p[1]);
  for (let i = 2; i < p.length; i += 2) {
    const x = p[i - 2], y = p[i - 1], a = p[i], b = p[i + 1];
    if (Math.abs(a - x) < 0.5) pen.lineTo(a, b);
    else pen.bezierCurveTo(x, (y + b) / 2, a, (y + b) / 2, a, b);
  }
}

function drawWires(view) {
  const visible = wires.filter((w) => w.top <= view.bottom && w.bottom >= view.top &&
    w.left <= view.right && w.right >= view.left);
  pen.globalAlpha = shown.matches !== null || shown.family !== null ? 0.35 : 1;
  pen.strokeStyle = pen.fillStyle = colours.edge;
  pen.lineWidth = Math.max(1.1, 0.6 / eye.scale);
  pen.beginPath();
  for (const wire of visible) trace(wire.p);
  pen.stroke();
  if (eye.scale > 0.3) for (const wire of visible) drawTip(wire);
  pen.globalAlpha = 1;
  const lit = shown.over || shown.chosen;
  if (!lit) return;
  pen.lineWidth = Math.max(2.2, 1.4 / eye.scale);
  for (const wire of lit.wires) {
    pen.strokeStyle = pen.fillStyle = wire.target === lit.i ? colours.accent : colours.use;
    pen.beginPath();
    trace(wire.p);
    pen.stroke();
    drawTip(wire);
  }
}

function drawTip(wire) {
  const x = wire.p[wire.p.length - 2], y = wire.p[wire.p.length - 1];
  pen.beginPath();
  pen.moveTo(x - 3.5, y - 7);
  pen.lineTo(x + 3.5, y - 7);
  pen.lineTo(x, y);
  pen.fill();
}

function outline(box, grow = 0) {
  const round = box.kind === "input" || box.kind === "output";
  const radius = round ? Math.min(14, box.h / 2) : 5;
  pen.beginPath();
  pen.roundRect(box.x - grow, box.y - grow, box.w + 2 * grow, box.h + 2 * grow, radius + grow);
}

function drawBox(box) {
  const colour = colours.families[box.family];
  if (eye.scale < 0.28) {
    pen.fillStyle = colour;
    pen.fillRect(box.x, box.y, box.w, box.h);
    return;
  }
  const port = box.kind === "input" || box.kind === "output";
  outline(box);
  pen.fillStyle = colours.box;
  pen.fill();
  pen.strokeStyle = port ? colour : colours.edge;
  pen.lineWidth = port ? 2 : 1;
  pen.stroke();
  pen.fillStyle = colour;
  pen.fillRect(box.x, box.y + 6, 5, box.h - 12);
  const room = box.w - 20;
  pen.fillStyle = colours.ink;
  pen.font = "600 13px " + FONT;
  pen.fillText(box.title, box.x + 12, box.y + 20, room);
  if (eye.scale < 0.42) return;
  pen.fillStyle = colours.soft;
  pen.font = "11px " + FONT;
  for (let i = 0; i < box.lines.length; i++) {
    pen.fillText(box.lines[i], box.x + 12, box.y + 35 + 15 * i, room);
  }
}

function drawMark(box) {
  outline(box, 2);
  pen.strokeStyle = colours.accent;
  pen.lineWidth = Math.max(box === shown.chosen ? 3 : 2, 2 / eye.scale);
  pen.stroke();
}

// -- the map at the left ---------------------------------------------------------------------

const map = $("map");
const mapPen = map.getContext("2d");
let mapScale = 1;
let mapLeft = 0;

function sizeMap() {
  const ratio = window.devicePixelRatio || 1;
  const area = map.getBoundingClientRect();
  if (!area.width) return;
  map.width = Math.round(area.width * ratio);
  map.height = Math.round(size.h * ratio);
  mapScale = Math.min((area.width - 12) / data.width, (size.h - 12) / data.height);
  mapLeft = (area.width - data.width * mapScale) / 2;
}

function drawMap() {
  if (!map.width || !map.offsetWidth) return;
  const ratio = window.devicePixelRatio || 1;
  mapPen.setTransform(ratio, 0, 0, ratio, 0, 0);
  mapPen.fillStyle = colours.raised;
  mapPen.fillRect(0, 0, map.width, map.height);
  const filtered = shown.matches !== null || shown.family !== null;
  for (const box of boxes) {
    mapPen.globalAlpha = filtered && isDim(box) ? 0.15 : 1;
    mapPen.fillStyle = colours.families[box.family];
    mapPen.fillRect(mapLeft + box.x * mapScale, 6 + box.y * mapScale,
      Math.max(1.5, box.w * mapScale), Math.max(1, box.h * mapScale));
  }
  mapPen.globalAlpha = 1;
  mapPen.strokeStyle = colours.ink;
  mapPen.lineWidth = 1;
  const left = Math.max(0.5, mapLeft + eye.x * mapScale);
  const right = Math.min(map.offsetWidth - 1.5, mapLeft + (eye.x + size.w / eye.scale) * mapScale);
  const top = 6 + eye.y * mapScale, high = (size.h / eye.scale) * mapScale;
  mapPen.strokeRect(left, top, Math.max(4, right - left), Math.max(3, high));
}

function mapTo(event) {
  const area = map.getBoundingClientRect();
  eye.x = (event.clientX - area.left - mapLeft) / mapScale - size.w / eye.scale / 2;
  eye.y = (event.clientY - area.top - 6) / mapScale - size.h / eye.scale / 2;
  bound();
}

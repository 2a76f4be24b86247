// Search, details, tooltip, legend. Text from the file is only ever set as text.

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

const hex = (offset) => "0x" + offset.toString(16);
const place = (op) => `operator ${op}` +
  (data.ops[op].o === null ? "" : `, file offset ${hex(data.ops[op].o)}`);

// Operators without a box of their own (folded weights) stand in the box of their first user.
function boxFor(op) {
  const own = boxOf.get(op);
  if (own) return own;
  for (const [, , users] of data.ops[op].u) {
    for (const user of users) if (boxOf.has(user)) return boxOf.get(user);
  }
  return null;
}

// -- search ----------------------------------------------------------------------------------

function plain(text) {
  return text.toLowerCase().replace(/(\d|\?)\s*[x*,×]\s*(?=\d|\?)/g, "$1×");
}

function searchText(box) {
  const types = [box.title], names = [box.name], shapes = [];
  if (box.kind === "output") {
    return { type: "output", name: plain(box.name), shape: plain(box.lines.join(" ")) };
  }
  const add = (op) => {
    const found = data.ops[op];
    types.push(found.t);
    if (found.n) names.push(found.n);
    for (const [name, type] of found.u) {
      if (name) names.push(name);
      shapes.push(type);
    }
    for (const [name] of found.h) if (name) names.push(name);
  };
  add(box.op);
  const found = data.ops[box.op];
  types.push(box.kind);
  for (const [, , type, op] of found.i) {
    shapes.push(type);
    if (!boxOf.has(op)) add(op); // a weight folded into this box
  }
  for (const k of found.p) for (const [, value, set] of data.params[k][1]) if (set) types.push(value);
  return {
    type: plain(types.join("\n")), name: plain(names.join("\n")), shape: plain(shapes.join("\n")),
  };
}

let texts = null;

// Shapes may be typed as 1x64, 1*64, 1×64, (1, 64) or [1, 64].
const BRACKETS = /[([]\s*((?:\d+|\?)(?:\s*[,x*×]\s*(?:\d+|\?))+),?\s*[)\]]/g;

function find(query) {
  const words = plain(query.replace(BRACKETS, "$1")).split(/\s+/).filter(Boolean);
  if (!words.length) return null;
  if (!texts) texts = boxes.map(searchText);
  const tests = words.map((word) => {
    const [, key, rest] = /^(type|name|shape):(.*)$/.exec(word) || [];
    return key ? (t) => t[key].includes(rest)
      : (t) => t.type.includes(word) || t.name.includes(word) || t.shape.includes(word);
  });
  return boxes.filter((box) => tests.every((test) => test(texts[box.i])));
}

let matches = [];
let match = -1;

function search() {
  const found = find($("query").value);
  matches = found || [];
  match = -1;
  shown.matches = found && new Set(found.map((b) => b.i));
  $("count").textContent = found ? `${found.length} of ${boxes.length}` : "";
  listMatches(found);
  redraw();
}

function listMatches(found) {
  const list = $("matches");
  list.hidden = !found;
  list.replaceChildren();
  if (!found) return;
  if (!found.length) list.append(element("p", "", "Nothing has this name, type or shape."));
  for (const [k, box] of found.slice(0, 200).entries()) {
    const button = element("button", "", box.title);
    const last = box.lines[box.lines.length - 1] || "";
    button.append(element("small", "", box.name === box.title ? last : `${box.name}  ${last}`));
    button.addEventListener("click", () => toMatch(k));
    list.append(button);
  }
  if (found.length > 200) list.append(element("p", "", `and ${found.length - 200} more`));
}

function toMatch(k) {
  if (!matches.length) return;
  match = (k + matches.length) % matches.length;
  $("count").textContent = `${match + 1} of ${matches.length}`;
  const buttons = $("matches").querySelectorAll("button");
  buttons.forEach((b, i) => b.classList.toggle("chosen", i === match));
  if (buttons[match]) buttons[match].scrollIntoView({ block: "nearest" });
  choose(matches[match]);
}

function endSearch() {
  $("query").value = "";
  search();
}

// -- details ---------------------------------------------------------------------------------

function choose(box, op = box ? box.op : -1, { stay = false } = {}) {
  shown.chosen = box;
  $("panel").hidden = !box && op < 0;
  if (box || op >= 0) fillDetails(box, op);
  resize();
  if (box || op >= 0) {
    $("panel").scrollTop = 0;
    const text = box ? `${box.title}, ${box.lines.join(", ")}` : data.ops[op].t;
    $("live").textContent = text;
  }
  if (box && stay) show(box);
  else if (box) centre(box);
  redraw();
}

function link(op, text) {
  if (op < 0) return element("span", "text", text);
  const made = element("button", "link", text);
  made.addEventListener("click", () => choose(boxFor(op), op));
  return made;
}

function section(title, items, more) {
  if (!items.length) return;
  $("details").append(element("h3", "", title));
  const list = element("ul");
  list.append(...items);
  if (more) list.append(element("li", "", `and ${more} more`));
  $("details").append(list);
}

function item(first, type, rest = []) {
  const made = element("li");
  made.append(...first, element("br"), element("small", "", type));
  if (rest.length) {
    made.append(element("br"), element("small", "", "used by "));
    rest.forEach((part, i) => made.append(i ? ", " : "", part));
  }
  return made;
}

function fillDetails(box, op) {
  const panel = $("details");
  panel.replaceChildren();
  if (box && box.kind === "output" && op === box.op) {
    panel.append(element("h2", "", box.name), element("p", "", "output of the graph"));
    section("Type", [element("li", "", box.lines.join(", "))]);
    section("Computed by", [item([link(op, data.ops[op].n || data.ops[op].t)], place(op))]);
    return;
  }
  const found = data.ops[op];
  const own = box && box.op === op;
  panel.append(element("h2", "", own ? box.title : found.t));
  if (own && box.title !== found.t) panel.append(element("p", "", found.t));
  if (found.n) panel.append(element("p", "", `name: ${found.n}`));
  panel.append(element("p", "", place(op)));
  for (const problem of found.x) panel.append(element("p", "", `problem: ${problem}`));
  section("Inputs", found.i.map(([role, name, type, from]) =>
    item([element("small", "", role ? `${role}  ` : ""), link(from, name)], type)), found.im);
  section("Outputs", found.u.map(([name, type, users, more]) => {
    const links = users.map((u) => link(u, data.ops[u].n || `${data.ops[u].t} [${u}]`));
    if (more) links.push(element("small", "", `and ${more} more`));
    return item([element("span", "text", name || "(no name)")], type, links);
  }), found.um);
  section("Holds", found.h.map(([name, type, bytes, offset]) => item(
    [element("span", "text", name || "(no name)")],
    bytes === null ? `${type}, no value`
      : `${type}, ${bytes.toLocaleString("en")} bytes` + (offset === null ? "" : ` at ${hex(offset)}`),
  )), found.hm);
  for (const k of found.p) params(data.params[k]);
  const rest = [];
  if (found.c.length) rest.push(`computing node ${found.c.join(", ")}`);
  if (found.r) rest.push(`priority ${found.r}`);
  if (found.d) rest.push(`stored output type ${found.d}`);
  if (found.s && found.s !== found.t) rest.push(`stored as ${found.s}`);
  section("Else", rest.map((text) => element("li", "", text)));
  const hint = element("p");
  hint.append(element("small", "", "more: "), element("code", "", `mgeserial info MODEL --op ${op}`));
  panel.append(element("h3", "", ""), hint);
}

function params([table, fields]) {
  if (!fields.length) return;
  $("details").append(element("h3", "", `Parameters ${table}`));
  const made = element("table");
  for (const [name, value, set] of fields) {
    const row = element("tr", set ? "set" : "same");
    row.append(element("td", "", name), element("td", "", value + (set ? "" : " (default)")));
    made.append(row);
  }
  $("details").append(made);
}

// -- tooltip ---------------------------------------------------------------------------------

function hover(box, x = 0, y = 0) {
  const tip = $("tip");
  if (box !== shown.over) {
    shown.over = box;
    scene.classList.toggle("over", Boolean(box));
    redraw();
    if (box) fillTip(tip, box);
  }
  tip.hidden = !box;
  if (!box) return;
  const room = tip.getBoundingClientRect();
  const left = x + 16 + room.width > innerWidth ? x - 12 - room.width : x + 16;
  const top = y + 16 + room.height > innerHeight ? innerHeight - room.height - 6 : y + 16;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, top)}px`;
}

function fillTip(tip, box) {
  const found = data.ops[box.op];
  tip.replaceChildren(element("b", "", box.title));
  const line = (text, className) => tip.append(element("div", className, text));
  if (box.kind === "output") {
    box.lines.forEach((text) => line(text));
    line(`computed by ${found.n || found.t}, ${place(box.op)}`, "dim");
    return;
  }
  if (box.name !== box.title) line(box.name);
  for (const [role, name, type] of found.i.slice(0, 8)) line(`in  ${role || name}: ${type}`);
  if (found.i.length + found.im > 8) line(`in  ... ${found.i.length + found.im} in all`);
  for (const [name, type] of found.u.slice(0, 6)) line(`out ${name || ""}: ${type}`);
  for (const [, type] of found.h.slice(0, 4)) line(`holds ${type}`);
  const set = found.p.flatMap((k) => data.params[k][1].filter((f) => f[2]));
  if (set.length) line(set.map(([name, value]) => `${name}=${value}`).join(", "));
  for (const problem of found.x) line(`problem: ${problem}`);
  line(`${found.t}, ${place(box.op)}`, "dim");
}

// -- legend ----------------------------------------------------------------------------------

function fillLegend() {
  const counts = new Map();
  for (const box of boxes) counts.set(box.family, (counts.get(box.family) || 0) + 1);
  const legend = $("legend");
  legend.replaceChildren();
  for (const [k, count] of [...counts].sort((a, b) => b[1] - a[1])) {
    const button = element("button");
    const swatch = element("span", "swatch");
    swatch.style.background = colours.families[k];
    button.append(swatch, `${data.families[k].title} ${count}`);
    button.title = "Show only this family";
    button.setAttribute("aria-pressed", String(shown.family === k));
    button.addEventListener("click", () => {
      shown.family = shown.family === k ? null : k;
      fillLegend();
      redraw();
    });
    legend.append(button);
  }
}

"use strict";
// Everything is drawn from the facts of the page. Text is set as text, never as markup.
const facts = JSON.parse(document.getElementById("facts").textContent);
const kinds = Object.keys(facts.maps);
const at = {kind: kinds.includes("cross") ? "cross" : kinds[0], layer: -1, head: -1, words: false, query: 0, key: 0, told: false};
const MOVES = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]};
const find = id => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value); else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

function draw(name, attributes = {}, text = "") {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = text;
  return element;
}

const shown = token => token.replaceAll("\u2581", "\u00b7");  // a space before a token, small
const within = (i, size) => Math.max(0, Math.min(size - 1, i));
const bytes = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));

// ---- weights: as they are, or with subwords joined to words (summed over keys, the mean over queries)

for (const map of Object.values(facts.maps)) {
  const raw = bytes(map.weights);
  const roots = facts.largest > 255 ? new Uint16Array(raw.buffer) : raw;  // square roots: small weights keep their digits
  map.numbers = Float32Array.from(roots, root => (root / facts.largest) ** 2);
}

function joined(tokens, groups) {
  const whole = Array(Math.max(...groups) + 1).fill("");
  tokens.forEach((token, i) => { whole[groups[i]] += token.replaceAll("\u2581", ""); });
  return whole;
}

function axes(kind) {
  const map = facts.maps[kind];
  if (!at.words) return {queries: map.queries.map(shown), keys: map.keys.map(shown)};
  return {queries: joined(map.queries, map.query_words), keys: joined(map.keys, map.key_words)};
}

function weights(kind, layer, head) {  // rows of numbers; -1 is the mean over layers or heads
  const map = facts.maps[kind], T = map.queries.length, S = map.keys.length;
  const layers = layer < 0 ? [...Array(map.layers).keys()] : [layer];
  const heads = head < 0 ? [...Array(map.heads).keys()] : [head];
  const share = 1 / (layers.length * heads.length);
  const {queries, keys} = at.words ? {queries: map.query_words, keys: map.key_words} : {queries: null, keys: null};
  const height = queries ? Math.max(...queries) + 1 : T, width = keys ? Math.max(...keys) + 1 : S;
  const rows = Array.from({length: height}, () => new Float32Array(width));
  const sizes = queries ? Array(height).fill(0) : null;
  if (queries) queries.forEach(word => { sizes[word] += 1; });
  for (const l of layers) for (const h of heads) {
    const begin = (l * map.heads + h) * T * S;
    for (let t = 0; t < T; t++) for (let s = 0; s < S; s++) {
      const row = queries ? queries[t] : t, column = keys ? keys[s] : s;
      rows[row][column] += map.numbers[begin + t * S + s] * share / (sizes ? sizes[row] : 1);
    }
  }
  return rows;
}

function bits(rows) {  // entropy, the mean over queries; rows are made to sum to one, as rounding may have changed that
  const spread = row => {
    const sum = row.reduce((a, b) => a + b, 0) || 1;
    return row.reduce((found, weight) => weight > 0 ? found - weight / sum * Math.log2(weight / sum) : found, 0);
  };
  return rows.reduce((found, row) => found + spread(row), 0) / rows.length;
}

// ---- drawing

const ruler = document.createElement("canvas").getContext("2d");

function widest(names, font) {  // in pixels
  ruler.font = `${font}px system-ui, sans-serif`;
  return Math.ceil(Math.max(...names.map(name => ruler.measureText(name).width)));
}

const colour = () => getComputedStyle(document.documentElement).getPropertyValue("--map").trim();

function paint(canvas, rows) {  // one pixel a cell; the style sheet makes it larger
  const [width, height] = [canvas.width, canvas.height] = [rows[0].length, rows.length];
  const pen = canvas.getContext("2d"), image = pen.createImageData(width, height), rgb = colour().split(",").map(Number);
  rows.forEach((row, t) => row.forEach((weight, s) => {
    image.data.set([...rgb, Math.min(255, 255 * weight)], 4 * (t * width + s));
  }));
  pen.putImageData(image, 0, 0);
}

function title() {
  const name = facts.maps[at.kind].name;
  const layer = at.layer < 0 ? "mean of all layers" : `layer ${at.layer + 1}`;
  const head = at.head < 0 ? "mean of all heads" : `head ${at.head + 1}`;
  return `${name[0].toUpperCase()}${name.slice(1)}: ${layer}, ${head}`;
}

function showKinds() {
  const box = find("kinds");
  box.replaceChildren(...kinds.map((kind, i) => make("button", {
    type: "button", role: "radio", "aria-checked": String(kind === at.kind), "data-kind": kind,
    tabindex: kind === at.kind ? "0" : "-1",
    onclick: () => { Object.assign(at, {kind, layer: -1, head: -1, query: 0, key: 0, told: false}); show(); },
  }, facts.maps[kind].name, " ", make("kbd", {}, String(i + 1)))));
}

function showOverview() {
  const map = facts.maps[at.kind], box = find("overview");
  box.style.gridTemplateColumns = `auto repeat(${map.heads + 1}, auto)`;
  const top = make("div", {role: "row"}, make("span", {class: "name", role: "gridcell"})), lines = [top];
  for (let h = -1; h < map.heads; h++) {
    top.append(make("span", {class: "name top", role: "columnheader"}, h < 0 ? "mean" : `head ${h + 1}`));
  }
  for (let l = -1; l < map.layers; l++) {
    const cells = [make("span", {class: "name", role: "rowheader"}, l < 0 ? "mean" : `layer ${l + 1}`)];
    for (let h = -1; h < map.heads; h++) {
      const chosen = l === at.layer && h === at.head, rows = weights(at.kind, l, h), canvas = make("canvas", {"aria-hidden": "true"});
      paint(canvas, rows);
      const entropy = l >= 0 && h >= 0 ? (at.words ? bits(rows) : map.entropy[l][h]).toFixed(2) : "";
      const where = `${l < 0 ? "all layers" : `layer ${l + 1}`}, ${h < 0 ? "all heads" : `head ${h + 1}`}`;
      cells.push(make("button", {
        type: "button", role: "gridcell", tabindex: chosen ? "0" : "-1", "aria-selected": String(chosen),
        "aria-label": `${where}${entropy ? `, entropy ${entropy} bits` : ""}`, "data-layer": l, "data-head": h,
        onclick: () => choose(l, h, true),
      }, canvas, make("small", {}, entropy || "\u00a0")));
    }
    lines.push(make("div", {role: "row"}, ...cells));
  }
  box.replaceChildren(...lines);
}

function choose(layer, head, focus) {
  const map = facts.maps[at.kind];
  at.layer = Math.max(-1, Math.min(map.layers - 1, layer));
  at.head = Math.max(-1, Math.min(map.heads - 1, head));
  for (const button of find("overview").querySelectorAll("button")) {
    const chosen = Number(button.dataset.layer) === at.layer && Number(button.dataset.head) === at.head;
    button.setAttribute("aria-selected", String(chosen));
    button.tabIndex = chosen ? 0 : -1;
    if (chosen && focus) button.focus();
  }
  showHead();
}

const HOW = find("cell").textContent;
let now;  // the head that is large: rows, names, sizes

function showHead() {
  const {queries, keys} = axes(at.kind), rows = weights(at.kind, at.layer, at.head);
  find("head-title").textContent = title();
  find("axes").textContent = at.kind === "encoder"
    ? "Rows: each source token; columns: what it looks at."
    : `Rows: each token as it is being written; columns: ${at.kind === "cross" ? "the source" : "what has been written"}.`;
  const size = Math.max(9, Math.min(30, Math.floor(560 / Math.max(rows.length, rows[0].length))));
  const font = Math.max(9, Math.min(14, size - 1));
  now = {rows, queries, keys, size, font, left: widest(queries, font) + 8, top: widest(keys, font) + 8};
  if (at.told) tell(at.query, at.key); else { paintLarge(); find("cell").textContent = HOW; }
  showLines();
  find("numbers").replaceChildren();
  if (find("numbers").parentElement.open) showNumbers();
}

function paintLarge() {
  const {rows, queries, keys, size, font, left, top} = now, canvas = find("large"), scale = window.devicePixelRatio || 1;
  const width = left + rows[0].length * size + 2, height = top + rows.length * size + 2;
  canvas.width = width * scale; canvas.height = height * scale;
  canvas.style.width = `${width}px`; canvas.style.height = `${height}px`;
  canvas.setAttribute("aria-label", `${title()}: ${queries.length} queries by ${keys.length} keys`);
  const pen = canvas.getContext("2d"), style = getComputedStyle(document.documentElement), rgb = colour();
  pen.scale(scale, scale);
  pen.font = `${font}px system-ui, sans-serif`;
  pen.textBaseline = "middle";
  rows.forEach((row, t) => row.forEach((weight, s) => {
    if (weight < 0.004) return;
    pen.fillStyle = `rgba(${rgb}, ${Math.min(1, weight)})`;
    pen.fillRect(left + s * size, top + t * size, size, size);
  }));
  pen.strokeStyle = style.getPropertyValue("--edge");
  pen.strokeRect(left, top, rows[0].length * size, rows.length * size);
  pen.fillStyle = style.getPropertyValue("--ink");
  pen.textAlign = "right";
  queries.forEach((name, t) => pen.fillText(name, left - 5, top + (t + 0.5) * size));
  pen.textAlign = "left";
  keys.forEach((name, s) => {
    pen.save();
    pen.translate(left + (s + 0.5) * size, top - 5);
    pen.rotate(-Math.PI / 2);
    pen.fillText(name, 0, 0);
    pen.restore();
  });
  if (!at.told) return;
  pen.strokeStyle = style.getPropertyValue("--hot");
  pen.lineWidth = 2;
  pen.strokeRect(left + at.key * size, top + at.query * size, size, size);
}

function tell(query, key) {
  Object.assign(at, {query, key, told: true});
  paintLarge();
  const {rows, queries, keys} = now;
  find("cell").textContent = `${queries[query]} looks at ${keys[key]}: ${rows[query][key].toFixed(3)}`;
}

// ---- lines between words, as head views have them

const FAINT = 0.04;  // below this weight no line is drawn
let highlighted = -1;

function showLines() {
  const {queries, keys} = now, svg = find("lines"), step = 24;
  const wide = names => widest(names, 14) * 1.1 + 6;  // room for the bold one
  Object.assign(now, {step, from: wide(queries), to: wide(queries) + 190});
  const height = Math.max(queries.length, keys.length) * step + 10, width = now.to + wide(keys);
  for (const [key, value] of Object.entries({viewBox: `0 0 ${width} ${height}`, width, height})) svg.setAttribute(key, value);
  const left = queries.map((name, t) => {
    const text = draw("text", {x: now.from, y: t * step + 19, "text-anchor": "end", role: "option",
      tabindex: t === at.query ? "0" : "-1"}, name);
    text.addEventListener("mouseenter", () => highlight(t));
    text.addEventListener("focus", () => highlight(t));
    text.addEventListener("blur", () => highlight(-1));
    return text;
  });
  const right = keys.map((name, s) => draw("text", {x: now.to, y: s * step + 19}, name));
  const list = draw("g", {role: "listbox", "aria-label": "Queries"}), others = draw("g");
  list.append(...left);
  others.append(...right);
  svg.replaceChildren(draw("g"), list, others);
  highlighted = -2;
  highlight(-1);
}

function highlight(query) {  // the lines of one query, or of all
  if (query === highlighted) return;
  highlighted = query;
  const {rows, step, from, to} = now, lines = [];
  rows.forEach((row, t) => row.forEach((weight, s) => {
    if (weight < FAINT || (query >= 0 && t !== query)) return;
    lines.push(draw("line", {x1: from + 4, y1: t * step + 14, x2: to - 4, y2: s * step + 14, "stroke-opacity": weight.toFixed(3)}));
  }));
  find("lines").firstElementChild.replaceChildren(...lines);
  [...find("lines").querySelectorAll("text")].forEach((text, i) => {
    const dim = query >= 0 && (i < rows.length ? i !== query : rows[query][i - rows.length] < FAINT);
    text.setAttribute("class", dim ? "dim" : "");
    if (i >= rows.length) return;
    text.setAttribute("aria-selected", String(i === query));
    if (query >= 0) text.setAttribute("tabindex", i === query ? "0" : "-1");
  });
  if (query >= 0) tell(query, rows[query].indexOf(Math.max(...rows[query])));
}

function showNumbers() {
  const {rows, queries, keys} = now;
  const head = make("tr", {}, make("th", {}), ...keys.map(name => make("th", {scope: "col"}, name)));
  const body = rows.map((row, t) => make("tr", {}, make("th", {scope: "row"}, queries[t]),
    ...Array.from(row, weight => make("td", {}, weight.toFixed(3)))));
  find("numbers").replaceChildren(make("table", {}, make("caption", {class: "hidden"}, title()), head, ...body));
}

// ---- alignment, next tokens, beams: the same whatever head is chosen

function showRest() {
  find("model").textContent = facts.model;
  find("text").textContent = facts.text;
  find("translation").textContent = facts.translation;
  find("alignment-section").hidden = !facts.alignment.length;
  find("alignment").replaceChildren(make("ul", {}, ...facts.alignment.map(([target, source, weight]) =>
    make("li", {}, source, " \u2194 ", make("strong", {}, target), " ", make("small", {}, weight.toFixed(2))))));
  find("steps").replaceChildren(make("ol", {}, ...facts.steps.map(step => {
    const item = make("li", {class: "step"});
    const among = step.next.some(([token]) => token === step.token);
    for (const [token, p] of among ? step.next : [...step.next, [step.token, step.p]]) {
      const bar = make("div", {class: token === step.token ? "bar written" : "bar"}, make("span", {}, shown(token)),
        make("span", {}, p.toFixed(3), ...token === step.token ? [make("span", {class: "hidden"}, " written")] : []));
      bar.style.setProperty("--p", `${100 * p}%`);
      item.append(bar);
    }
    return item;
  })));
  find("beams-section").hidden = !facts.beams.length;
  if (facts.beams.length) showBeams();
}

function showBeams() {
  const nodes = facts.beams.map(([token, parent, score, kept]) => ({token, parent, score, kept, children: [], depth: 1}));
  const roots = [];
  nodes.forEach(node => {
    if (node.parent < 0) roots.push(node); else { nodes[node.parent].children.push(node); node.depth = nodes[node.parent].depth + 1; }
  });
  const widths = [];  // of each depth, by its longest token
  nodes.forEach(node => {
    node.name = `${shown(node.token)} ${node.score.toFixed(2)}`;
    node.width = widest([node.name], 13) * 1.1 + 6;  // room for bold ones
    widths[node.depth] = Math.max(widths[node.depth] || 0, node.width + 34);
  });
  const left = [0, 10];
  for (let depth = 2; depth <= widths.length; depth++) left[depth] = left[depth - 1] + (widths[depth - 1] || 0);
  let line = 0;
  const place = node => {  // leaves one under the other, what has children beside the first of them
    if (!node.children.length) node.y = 16 + 22 * line++;
    else { node.children.forEach(place); node.y = node.children[0].y; }
  };
  roots.forEach(place);
  const svg = draw("svg", {width: left[left.length - 1] + 20, height: 22 * line + 12, role: "img",
    "aria-label": `Beam search: ${nodes.length} hypotheses; the best is ${facts.translation}`});
  const texts = [];
  for (const node of nodes) {
    const x = left[node.depth];
    for (const child of node.children) {
      const end = left[child.depth] - 4, begin = x + node.width;
      svg.append(draw("path", {class: child.kept ? "kept" : "",
        d: `M ${begin} ${node.y} C ${begin + 14} ${node.y} ${end - 14} ${child.y} ${end} ${child.y}`}));
    }
    texts.push(draw("text", {x, y: node.y + 4, class: node.kept ? "kept" : ""}, node.name));
  }
  svg.append(...texts);
  find("beams").replaceChildren(svg);
}

// ---- what a person does

function show() {
  if (!kinds.length) return;
  const held = ["kinds", "overview", "lines"].find(id => find(id).contains(document.activeElement));
  showKinds();
  showOverview();
  showHead();
  if (held) find(held).querySelector('[tabindex="0"]').focus({preventScroll: true});  // what had the focus is made anew
}

find("words").addEventListener("change", event => {
  Object.assign(at, {words: event.target.checked, query: 0, key: 0, told: false});
  show();
});
find("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.classList.contains("dark") ||
    (!root.classList.contains("light") && matchMedia("(prefers-color-scheme: dark)").matches);
  root.classList.toggle("dark", !dark);
  root.classList.toggle("light", dark);
  show();
});
function onArrows(id, go) {
  find(id).addEventListener("keydown", event => {
    if (!MOVES[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    go(...MOVES[event.key]);
  });
}
onArrows("kinds", (down, right) => {
  find("kinds").children[(kinds.indexOf(at.kind) + down + right + kinds.length) % kinds.length].click();
});
onArrows("overview", (down, right) => choose(at.layer + down, at.head + right, true));
onArrows("large", (down, right) => tell(within(at.query + down, now.rows.length), within(at.key + right, now.keys.length)));
onArrows("lines", down => find("lines").querySelectorAll("[role=option]")[within(at.query + down, now.rows.length)].focus());
find("large").addEventListener("focus", () => tell(at.query, at.key));
find("large").addEventListener("mousemove", event => {
  const box = event.target.getBoundingClientRect();
  const key = Math.floor((event.clientX - box.left - now.left) / now.size);
  const query = Math.floor((event.clientY - box.top - now.top) / now.size);
  if (query >= 0 && key >= 0 && query < now.rows.length && key < now.keys.length) tell(query, key);
});
find("lines").addEventListener("mouseleave", () => highlight(-1));
find("numbers").parentElement.addEventListener("toggle", event => { if (event.target.open) showNumbers(); });
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input[type=text]")) return;
  if (event.key === "w") find("words").click();
  else if (event.key === "t") find("theme").click();
  else if (kinds[Number(event.key) - 1]) find("kinds").children[Number(event.key) - 1].click();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
if (kinds.length) show();
else for (const id of ["overview-title", "head-title", "words"]) find(id).parentElement.hidden = true;
find("none").hidden = kinds.length > 0;
showRest();

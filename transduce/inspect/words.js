"use strict";
const facts = JSON.parse(document.getElementById("facts").textContent);
const canvas = document.getElementById("map"), search = document.getElementById("search");
const ids = new Map(facts.words.map((word, i) => [word, i]));
let chosen = -1, zoom = 1, middle = [0, 0];
document.getElementById("about").textContent = facts.about;

function place(i) { // of a word on the canvas
  const size = Math.min(canvas.width, canvas.height) * 0.47 * zoom;
  return [canvas.width / 2 + (facts.places[i][0] - middle[0]) * size,
          canvas.height / 2 - (facts.places[i][1] - middle[1]) * size];
}

function draw() {
  const scale = window.devicePixelRatio || 1;
  canvas.width = canvas.clientWidth * scale;
  canvas.height = canvas.clientHeight * scale;
  const pen = canvas.getContext("2d"), style = getComputedStyle(document.body);
  pen.fillStyle = style.color;
  pen.font = 12 * scale + "px system-ui, sans-serif";
  const taken = []; // where names stand, so that none covers another
  const near = chosen < 0 ? [] : facts.near[chosen];
  const write = (i, colour) => {
    const [x, y] = place(i), width = pen.measureText(facts.words[i]).width, height = 14 * scale;
    const box = [x + 5 * scale, y - height / 2, x + 5 * scale + width, y + height / 2];
    const free = taken.every(o => box[2] < o[0] || box[0] > o[2] || box[3] < o[1] || box[1] > o[3]);
    if (!free && !colour) return;
    taken.push(box);
    pen.fillStyle = colour || style.color;
    pen.globalAlpha = colour ? 1 : chosen < 0 ? 0.8 : 0.35;
    pen.fillText(facts.words[i], box[0], y + 4 * scale);
  };
  pen.globalAlpha = chosen < 0 ? 0.5 : 0.2;
  facts.words.forEach((_, i) => {
    const [x, y] = place(i);
    pen.beginPath(); pen.arc(x, y, 2 * scale, 0, 7); pen.fill();
  });
  for (const i of near) dot(i, "#0072B2");
  if (chosen >= 0) dot(chosen, "#D55E00");
  if (chosen >= 0) write(chosen, "#D55E00");
  for (const i of near) write(i, "#0072B2");
  facts.words.forEach((_, i) => { if (i !== chosen && !near.includes(i)) write(i); });
  function dot(i, colour) {
    const [x, y] = place(i);
    pen.globalAlpha = 1; pen.fillStyle = colour;
    pen.beginPath(); pen.arc(x, y, 4 * scale, 0, 7); pen.fill();
  }
}

function choose(i) {
  chosen = i;
  const list = document.getElementById("near");
  list.replaceChildren();
  document.getElementById("word").textContent = i < 0 ? "" : facts.words[i] + " is near to:";
  if (i >= 0) facts.near[i].forEach((other, rank) => {
    const item = document.createElement("li"), button = document.createElement("button");
    const name = document.createElement("span"), number = document.createElement("span");
    name.textContent = facts.words[other];
    number.textContent = facts.likeness[i][rank].toFixed(3);
    button.append(name, number);
    button.addEventListener("click", () => { search.value = facts.words[other]; choose(other); });
    item.append(button);
    list.append(item);
  });
  draw();
}

function nearest(event) { // the word nearest to the pointer
  const box = canvas.getBoundingClientRect(), scale = canvas.width / box.width;
  const x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;
  let best = -1, distance = (12 * scale) ** 2;
  facts.words.forEach((_, i) => {
    const [a, b] = place(i), d = (a - x) ** 2 + (b - y) ** 2;
    if (d < distance) { best = i; distance = d; }
  });
  return best;
}

search.addEventListener("input", () => {
  const text = search.value.trim();
  const all = document.getElementById("all");
  all.replaceChildren(...facts.words.filter(w => text && w.startsWith(text)).slice(0, 12).map(w => {
    const option = document.createElement("option");
    option.value = w;
    return option;
  }));
  const found = ids.has(text) ? ids.get(text) : ids.get(text.toLowerCase());
  choose(found === undefined ? -1 : found);
});
let from = null, moved = false;
canvas.addEventListener("pointerdown", event => { from = [event.clientX, event.clientY]; moved = false; });
canvas.addEventListener("pointermove", event => {
  if (!from) return;
  const size = Math.min(canvas.clientWidth, canvas.clientHeight) * 0.47 * zoom;
  const dx = event.clientX - from[0], dy = event.clientY - from[1];
  if (Math.abs(dx) + Math.abs(dy) > 3) moved = true;
  if (moved) { middle = [middle[0] - dx / size, middle[1] + dy / size]; from = [event.clientX, event.clientY]; draw(); }
});
window.addEventListener("pointerup", event => {
  if (from && !moved && event.target === canvas) { const i = nearest(event); if (i >= 0) search.value = facts.words[i]; choose(i); }
  from = null;
});
canvas.addEventListener("wheel", event => {
  event.preventDefault();
  zoom = Math.min(40, Math.max(0.8, zoom * Math.exp(-event.deltaY / 400)));
  draw();
}, { passive: false });
window.addEventListener("resize", draw);
draw();

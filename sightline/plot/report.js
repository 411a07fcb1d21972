"use strict";
// What moves in the report: values along the curves, and heat-maps of other steps, layers and heads. Its pictures are
// in the page already; `make`, `matrix`, `mapPicker`, `percent`, `shade` and `clamp` come from page.js.

const vector = (tag, className, attributes) => {
  const element = document.createElementNS(vectorNamespace, tag);
  element.setAttribute("class", className);
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  return element;
};
const grouped = (number) => number.toLocaleString("en");

// ---- curves --------------------------------------------------------------------------------------------------------

// The point nearest to `x`; a point is [x, place across, place down, text].
function nearest(points, x) {
  let [low, high] = [0, points.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < x) low = middle + 1;
    else high = middle;
  }
  return low > 0 && x - points[low - 1][0] < points[low][0] - x ? low - 1 : low;
}

const charts = [...document.querySelectorAll(".chart")].map((svg, index) => {
  const series = data.charts[index].map((line, number) => ({ ...line, number })).filter((line) => line.points.length);
  const layer = vector("g", "pointed", { "aria-hidden": "true" });
  svg.append(layer);
  return { svg, series, layer, readout: svg.parentElement.querySelector(".value") };
});

const told = (line, point, several) => `${several ? `${line.name} ` : ""}${point[3]}`;

// At rest a chart says how its lines end.
function rest(chart) {
  const parts = chart.series.map((line) => told(line, line.points[line.points.length - 1], chart.series.length > 1));
  chart.layer.replaceChildren();
  chart.readout.textContent = parts.length ? `at the end: ${parts.join(", ")}` : "nothing was measured";
}

// All charts share their axis, so all show the same step.
function pointAt(step) {
  for (const chart of charts) {
    if (step === null || !chart.series.length) {
      rest(chart);
      continue;
    }
    const found = chart.series.map((line) => [line, line.points[nearest(line.points, step)]]);
    const closest = found.reduce((one, other) => (Math.abs(other[1][0] - step) < Math.abs(one[1][0] - step) ? other : one));
    const [across, steps] = [closest[1][1], closest[1][0]];
    chart.layer.replaceChildren(
      vector("path", "cross", { d: `M${across} 14V188` }),
      ...found.map(([line, point]) => vector("circle", `spot line${line.number}`, { cx: point[1], cy: point[2], r: 3.6 })),
    );
    const parts = found.map(([line, point]) => told(line, point, found.length > 1));
    chart.readout.textContent = `step ${grouped(steps)}: ${parts.join(", ")}`;
  }
}

function listenToCharts() {
  for (const chart of charts) {
    const places = [...new Set(chart.series.flatMap((line) => line.points.map((point) => point[0])))].sort((a, b) => a - b);
    if (!places.length) continue;
    const all = chart.series.flatMap((line) => line.points).sort((a, b) => a[1] - b[1]);
    let place = places.length - 1;
    const point = (event) => {
      const box = chart.svg.getBoundingClientRect();
      const across = ((event.clientX - box.left) / box.width) * chart.svg.viewBox.baseVal.width;
      const best = all.reduce((one, other) => (Math.abs(other[1] - across) < Math.abs(one[1] - across) ? other : one));
      place = places.indexOf(best[0]);
      pointAt(best[0]);
    };
    chart.svg.addEventListener("pointermove", point);
    chart.svg.addEventListener("pointerdown", point);
    chart.svg.addEventListener("pointerleave", (event) => event.pointerType !== "touch" && pointAt(null));
    chart.svg.addEventListener("focus", () => chart.svg.matches(":focus-visible") && pointAt(places[place]));
    chart.svg.addEventListener("blur", () => pointAt(null));
    chart.svg.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: place - 1, ArrowRight: place + 1, Home: 0, End: places.length - 1 };
      if (!(event.key in moves) || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      place = clamp(moves[event.key], 0, places.length - 1);
      pointAt(places[place]);
    });
  }
}

// ---- attention over the time of training ---------------------------------------------------------------------------

const movie = data.attention;
const film = { frame: movie ? movie.steps.length - 1 : 0, chosen: movie ? movie.sentences[0].chosen : null, timer: null };
const maps = movie ? [...document.querySelectorAll(".map")].map((root, index) => ({
  sentence: movie.sentences[index], readout: root.querySelector(".value"), svg: root.querySelector("svg"),
  cells: [...root.querySelectorAll(".weight")], active: null, bytes: movie.sentences[index].frames.map(() => null),
})) : [];

function weightsNow(map) {
  const { source, target, heads, frames } = map.sentence;
  const model = { source, target, heads, weights: frames[film.frame], bytes: map.bytes[film.frame] };
  const result = matrix(model, film.chosen);
  map.bytes[film.frame] = model.bytes;
  return result;
}

function say(map) {
  const { source, target } = map.sentence;
  map.cells.forEach((cell, place) => cell.classList.toggle("lit", place === map.active));
  if (map.active === null) {
    map.readout.textContent = "";
    return;
  }
  const [row, column] = [Math.floor(map.active / source.length), map.active % source.length];
  const word = (text) => make("bdi", "", text);
  map.readout.replaceChildren("“", word(target[row]), "” looks at “", word(source[column]), `”: ${percent(map.weights[map.active])}`);
}

function show() {
  for (const map of maps) {
    map.weights = weightsNow(map);
    map.cells.forEach((cell, place) => {
      cell.setAttribute("fill-opacity", shade(map.weights[place]).toFixed(3));
      if (cell.firstChild) cell.firstChild.remove(); // the tooltip of the picture that was here
    });
    say(map);
  }
  const note = movie.notes[film.frame];
  byId("told").textContent = `${grouped(movie.steps[film.frame])}${note ? ` · ${note}` : ""}`;
}

function goTo(frame) {
  film.frame = clamp(frame, 0, movie.steps.length - 1);
  byId("moment").value = film.frame;
  byId("moment").setAttribute("aria-valuetext", `step ${grouped(movie.steps[film.frame])}`);
  show();
  pointAt(movie.steps[film.frame]);
}

function play(on) {
  clearInterval(film.timer);
  film.timer = null;
  byId("play").textContent = on ? "Stop" : "Play";
  byId("play").setAttribute("aria-pressed", on);
  if (!on) return;
  if (film.frame === movie.steps.length - 1) goTo(0);
  film.timer = setInterval(() => {
    goTo(film.frame + 1);
    if (film.frame === movie.steps.length - 1) play(false);
  }, clamp(8000 / movie.steps.length, 250, 900));
}

function pickMaps() {
  const [first] = movie.sentences;
  if (first.heads.length === 1 && first.heads[0] === 1) return;
  const picker = mapPicker(first, film.chosen, (value) => { film.chosen = value; show(); });
  picker.setAttribute("aria-label", "Layer and head");
  if (movie.sharpest) {
    const value = JSON.stringify(movie.sharpest);
    for (const option of picker.options) if (option.value === value) option.textContent += ", sharpest";
  }
  byId("picker").append(picker);
}

function listenToMaps() {
  for (const map of maps) {
    const columns = map.sentence.source.length;
    const rows = map.sentence.target.length;
    const at = (place) => { map.active = place; say(map); };
    map.svg.addEventListener("pointerover", (event) => {
      const place = map.cells.indexOf(event.target);
      at(place < 0 ? null : place);
    });
    map.svg.addEventListener("pointerleave", () => at(null));
    map.svg.addEventListener("focus", () => map.active === null && map.svg.matches(":focus-visible") && at(0));
    map.svg.addEventListener("blur", () => at(null));
    map.svg.addEventListener("keydown", (event) => {
      if (!event.key.startsWith("Arrow") || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      const place = map.active === null ? 0 : map.active;
      const down = (event.key === "ArrowDown") - (event.key === "ArrowUp");
      const right = (event.key === "ArrowRight") - (event.key === "ArrowLeft");
      const row = clamp(Math.floor(place / columns) + down, 0, rows - 1);
      at(row * columns + clamp((place % columns) + right, 0, columns - 1));
    });
  }
}

// ---- start ---------------------------------------------------------------------------------------------------------

document.querySelectorAll(".hint").forEach((hint) => { hint.hidden = false; });
listenToCharts();
pointAt(null);
if (movie) {
  document.querySelector(".player").hidden = movie.steps.length < 2 && movie.sentences[0].heads.length === 0;
  byId("moment").disabled = byId("play").disabled = movie.steps.length < 2;
  byId("moment").value = film.frame; // Firefox keeps form values over a reload
  byId("moment").addEventListener("input", (event) => { play(false); goTo(Number(event.target.value)); });
  byId("moment").addEventListener("blur", () => pointAt(null));
  byId("play").addEventListener("click", () => play(film.timer === null));
  pickMaps();
  listenToMaps();
  show();
}

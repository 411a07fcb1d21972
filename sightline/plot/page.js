"use strict";
// Draws the attention of one or several models. All text from the data enters by textContent or attributes, never as
// markup. T target words, S source words; a matrix is T * S numbers from 0 to 1, row by row.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const vectorNamespace = document.querySelector(".mark").namespaceURI;
const state = { sentence: 0, view: "lines", links: true, maps: new Map() };
let panels = [];
let hovered = null; // what the pointer is on: { panel, side, index } or { panel, side: "cell", row, column }
let focused = null; // what the keyboard is on; the pointer goes before it

const STRONG = 0.505; // from this weight on, the letters on a shaded word change colour to stay readable
const percent = (weight) => `${Math.round(weight * 100)}%`;
const shade = (weight) => Math.sqrt(weight);
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

function make(tag, className, text, attributes) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  return element;
}

// ---- weights -------------------------------------------------------------------------------------------------------

function bytes(model) {
  if (!model.bytes) model.bytes = Uint8Array.from(atob(model.weights), (character) => character.charCodeAt(0));
  return model.bytes;
}

// The last maps of a model may be others than attention's layers, by name: they are in no average.
const besideOf = (model) => model.beside || [];
const layersOf = (model) => model.heads.length - besideOf(model).length;

// Which matrix: [null, null] all layers, [layer, null] a layer's average, [layer, head] one head.
function matrix(model, [layer, head]) {
  const size = model.source.length * model.target.length;
  const result = new Float32Array(size);
  let start = 0;
  model.heads.forEach((count, index) => {
    if (layer === null ? index < layersOf(model) : layer === index) {
      const layerShare = layer === null ? 1 / layersOf(model) : 1;
      for (let number = 0; number < count; number += 1) {
        if (layer !== null && head !== null && head !== number) continue;
        const share = layer !== null && head !== null ? 1 : layerShare / count;
        const offset = start + number * size;
        for (let place = 0; place < size; place += 1) result[place] += (share * bytes(model)[offset + place]) / 255;
      }
    }
    start += count * size;
  });
  return result;
}

function mapPicker(model, chosen, onChange) {
  const select = make("select", "", undefined, { "aria-label": `Layer and head of ${model.name}` });
  const add = (parent, value, text) => {
    const used = JSON.stringify(value) === JSON.stringify(model.chosen) ? ", used to align" : "";
    const option = make("option", "", text + used, { value: JSON.stringify(value) });
    option.selected = JSON.stringify(value) === JSON.stringify(chosen);
    parent.append(option);
  };
  const layers = layersOf(model);
  if (layers) add(select, [null, null], "All layers, average");
  model.heads.slice(0, layers).forEach((count, layer) => {
    const group = make("optgroup", "", undefined, { label: `Layer ${layer}` });
    add(group, [layer, null], count === 1 ? `Layer ${layer}` : `Layer ${layer}, average`);
    for (let head = 0; count > 1 && head < count; head += 1) add(group, [layer, head], `Layer ${layer}, head ${head}`);
    select.append(group);
  });
  besideOf(model).forEach((name, place) => add(select, [layers + place, null], name));
  select.addEventListener("change", () => onChange(JSON.parse(select.value)));
  return select;
}

// ---- panels --------------------------------------------------------------------------------------------------------

function makePanel(model, index) {
  const panel = { model, root: make("section", "panel", undefined, { "aria-label": model.name }), words: {}, cells: [] };
  const head = make("div", "panel-head");
  head.append(make("h2", "", model.name, { dir: "auto" }));
  if (model.score !== null) head.append(make("span", "facts", `score ${model.score}`));
  panel.root.append(head);
  panel.root.append(make("p", "note", model.note, { dir: "auto" }));
  panel.body = make("div", "body");
  panel.readout = make("p", "readout", "", { "aria-live": "polite" });
  const content = make("div", "content"); // of both, so that the readout can stay in sight along the whole picture
  content.append(panel.body, panel.readout);
  panel.root.append(content);
  const maps = model.heads.length;
  if (maps && model.target.length && model.source.length) {
    const chosen = state.maps.get(index) || model.chosen;
    const valid = chosen[0] === null || (chosen[0] < maps && (chosen[1] === null || chosen[1] < model.heads[chosen[0]]));
    panel.matrix = matrix(model, valid ? chosen : model.chosen);
    if (maps > 1 || model.heads[0] > 1 || besideOf(model).length) {
      const picker = mapPicker(model, valid ? chosen : model.chosen, (value) => {
        state.maps.set(index, value);
        panel.matrix = matrix(model, value);
        keepingPlace(() => {
          fill(panel);
          layOut();
          paint(panel);
        });
      });
      head.append(picker);
    }
  }
  fill(panel);
  return panel;
}

function fill(panel) {
  const { model } = panel;
  panel.body.replaceChildren();
  panel.stage = null;
  if (!panel.matrix) panel.readout.textContent = "This model has no attention: it reads the whole source into one vector.";
  if (!model.target.length) panel.readout.textContent = "The model wrote nothing.";
  if (!model.source.length) panel.readout.textContent = "The source is empty.";
  if (panel.matrix && state.view === "grid") fillGrid(panel);
  else fillWords(panel);
}

function weight(panel, row, column) {
  return panel.matrix[row * panel.model.source.length + column];
}

// The letters decide, not the punctuation in front of them.
function direction(words) {
  const letter = words.join(" ").match(/\p{L}/u);
  return letter && /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]/.test(letter[0]) ? "rtl" : "ltr";
}

function fillWords(panel) {
  const stage = make("div", "stage");
  panel.lines = document.createElementNS(vectorNamespace, "svg");
  panel.lines.setAttribute("aria-hidden", "true");
  stage.append(panel.lines);
  for (const side of ["source", "target"]) {
    const words = panel.model[side];
    const list = make("div", `words ${side}`, undefined, {
      role: "group", dir: direction(words), "aria-label": `${side} words, arrow keys move`,
    });
    panel.words[side] = words.map((word, index) => {
      const label = `${word}, ${side} word ${index + 1} of ${words.length}`;
      const element = make("button", "word", "", {
        type: "button", "data-side": side, "data-index": index, "aria-label": label, title: word,
        tabindex: index === 0 ? 0 : -1,
      });
      element.append(make("span", "", word, { dir: "auto" }), make("span", "number", "", { "aria-hidden": "true", dir: "ltr" }));
      return element;
    });
    list.append(...panel.words[side]);
    stage.append(make("p", `side ${side}`, side), list);
  }
  panel.stage = stage;
  panel.body.append(stage);
}

function fillGrid(panel) {
  const { source, target } = panel.model;
  const scroller = make("div", "scroller");
  const grid = make("div", "grid", undefined, { role: "grid", "aria-label": `${panel.model.name}: weights` });
  const linked = new Set(panel.model.links.map(([from, to]) => to * source.length + from));
  const top = make("div", "row", undefined, { role: "row" });
  top.append(make("div", "corner", "", { role: "columnheader", "aria-label": "target, source" }));
  panel.words = { source: [], target: [] };
  panel.cells = [];
  source.forEach((word, index) => {
    const head = make("div", "head source", word, {
      role: "columnheader", tabindex: -1, "data-side": "source", "data-index": index, title: word,
    });
    panel.words.source.push(head);
    top.append(head);
  });
  grid.append(top);
  target.forEach((word, row) => {
    const line = make("div", "row", undefined, { role: "row" });
    const head = make("div", "head target", word, {
      role: "rowheader", tabindex: row === 0 ? 0 : -1, "data-side": "target", "data-index": row, title: word, dir: "auto",
    });
    panel.words.target.push(head);
    line.append(head);
    source.forEach((other, column) => {
      const value = weight(panel, row, column);
      const cell = make("div", "cell", "", {
        role: "gridcell", tabindex: -1, "data-side": "cell", "data-row": row, "data-column": column,
        "aria-label": `${word} looked at ${other}: ${percent(value)}`,
      });
      cell.style.setProperty("--shade", shade(value).toFixed(3));
      cell.classList.toggle("strong", value >= STRONG);
      cell.classList.toggle("link", state.links && linked.has(row * source.length + column));
      panel.cells.push(cell);
      line.append(cell);
    });
    grid.append(line);
  });
  panel.grid = grid;
  scroller.append(grid);
  panel.body.append(scroller);
}

// Cells as large as the panel allows, within what can be read; what does not fit scrolls.
function sizeGrid(panel) {
  const { source } = panel.model;
  const room = panel.body.clientWidth - 40;
  const longest = Math.max(...panel.model.target.map((word) => [...word].length));
  const head = clamp(longest * 9 + 20, 40, room * 0.34);
  const cell = clamp(Math.floor((room - head) / source.length) - 1, 15, 42);
  panel.grid.style.setProperty("--cell", `${cell}px`);
  panel.grid.style.setProperty("--head", `${head}px`);
  panel.grid.style.setProperty("--label", `${clamp(cell - 3, 11, 15)}px`);
  panel.grid.style.gridTemplateColumns = `max-content repeat(${source.length}, ${cell}px)`;
  // The heads stay in sight over the cells: a cell that the keyboard reaches must not stop behind them.
  const { height, width } = panel.grid.querySelector(".corner").getBoundingClientRect();
  panel.grid.parentElement.style.scrollPadding = `${height + 4}px 4px 4px ${width + 4}px`;
  panel.cells.forEach((element, place) => {
    const value = panel.matrix[place];
    element.textContent = cell >= 26 && value >= 0.045 ? Math.round(value * 100) : "";
  });
}

// ---- lines ---------------------------------------------------------------------------------------------------------

function curve(panel, column, row, className, opacity, width) {
  const frame = panel.stage.getBoundingClientRect();
  const from = panel.words.source[column].getBoundingClientRect();
  const to = panel.words.target[row].getBoundingClientRect();
  const middle = (box) => [box.left + box.width / 2 - frame.left, box.top + box.height / 2 - frame.top];
  let points;
  if (panel.stage.classList.contains("columns")) {
    const [x1, x2] = [from.right - frame.left, to.left - frame.left];
    const [y1, y2] = [middle(from)[1], middle(to)[1]];
    points = [[x1, y1], [(x1 + x2) / 2, y1], [(x1 + x2) / 2, y2], [x2, y2]];
  } else {
    const [y1, y2] = [from.bottom - frame.top, to.top - frame.top];
    const [x1, x2] = [middle(from)[0], middle(to)[0]];
    points = [[x1, y1], [x1, (y1 + y2) / 2], [x2, (y1 + y2) / 2], [x2, y2]];
  }
  const path = document.createElementNS(vectorNamespace, "path");
  path.setAttribute("d", `M${points[0]} C${points.slice(1).join(" ")}`);
  if (opacity) path.setAttribute("opacity", opacity.toFixed(3));
  if (width) path.setAttribute("stroke-width", width.toFixed(2));
  if (className) path.setAttribute("class", className);
  return path;
}

function drawLines(panel, active) {
  const { source, target, links } = panel.model;
  const paths = [];
  const touches = (row, column) => !active || (active.side === "target" ? active.index === row : active.index === column);
  if (state.links) {
    for (const [column, row] of links) if (touches(row, column)) paths.push(curve(panel, column, row, "link"));
  }
  const least = active ? 0.02 : 0.1; // at rest only what stands out, or long sentences turn into wool
  for (let row = 0; row < target.length; row += 1) {
    for (let column = 0; column < source.length; column += 1) {
      const value = weight(panel, row, column);
      if (value < least || !touches(row, column)) continue;
      const opacity = active ? 0.25 + 0.75 * shade(value) : 0.7 * shade(value);
      paths.push(curve(panel, column, row, "", opacity, 0.8 + 3.4 * value));
    }
  }
  panel.lines.replaceChildren(...paths);
}

// ---- what is pointed at --------------------------------------------------------------------------------------------

// The same source in another panel answers too, so that models can be compared word by word.
function activeIn(panel) {
  const active = hovered || focused;
  if (!active || active.panel === panel) return active;
  const same = active.side === "source" && active.panel.model.source.join("\n") === panel.model.source.join("\n");
  return same && panel.matrix ? active : null;
}

function weightsOf(panel, active) {
  const { source, target } = panel.model;
  return active.side === "target"
    ? source.map((word, column) => ({ word, index: column, value: weight(panel, active.index, column) }))
    : target.map((word, row) => ({ word, index: row, value: weight(panel, row, active.index) }));
}

// Words stand in <bdi>, so that one written from the right does not turn the sentence round it.
function tell(panel, active) {
  const { source, target } = panel.model;
  const word = (text) => make("bdi", "", text);
  let parts = ["Point at a word, or move to it with Tab and the arrow keys; Escape lets go."];
  if (active && active.side === "cell") {
    const value = percent(weight(panel, active.row, active.column));
    parts = ["“", word(target[active.row]), "” looked at “", word(source[active.column]), `”: ${value}`];
  } else if (active) {
    const verb = active.side === "target" ? "looked at" : "was looked at by";
    const top = weightsOf(panel, active).filter(({ value }) => value >= 0.01).sort((one, other) => other.value - one.value);
    const named = top.slice(0, 5).flatMap((entry, index) => [index ? ", " : "", word(entry.word), ` ${percent(entry.value)}`]);
    parts = ["“", word(panel.model[active.side][active.index]), `” ${verb} `, ...(named.length ? named : ["nothing"])];
  }
  const text = parts.map((part) => part.textContent || part).join("");
  if (panel.readout.textContent !== text) panel.readout.replaceChildren(...parts);
  panel.readout.classList.toggle("told", Boolean(active));
}

function paint(panel) {
  const active = activeIn(panel);
  const inGrid = state.view === "grid" && panel.matrix;
  const isActive = (side, index) => {
    if (!active) return false;
    if (active.side === "cell") return index === (side === "target" ? active.row : active.column);
    return active.side === side && active.index === index;
  };
  for (const side of ["source", "target"]) {
    panel.words[side].forEach((element, index) => element.classList.toggle("active", isActive(side, index)));
  }
  if (inGrid) paintGrid(panel, active);
  else paintWords(panel, panel.matrix ? active : null);
  if (panel.matrix) tell(panel, active);
}

function paintWords(panel, active) {
  const other = active && (active.side === "target" ? "source" : "target");
  const values = active ? weightsOf(panel, active) : [];
  const linked = new Set(active && state.links ? panel.model.links
    .filter(([from, to]) => active.index === (active.side === "target" ? to : from))
    .map(([from, to]) => (active.side === "target" ? from : to)) : []);
  for (const side of ["source", "target"]) {
    panel.words[side].forEach((element, index) => {
      const value = side === other ? values[index].value : 0;
      element.style.setProperty("--shade", shade(value).toFixed(3));
      element.classList.toggle("shaded", value >= 0.005);
      element.classList.toggle("strong", value >= STRONG);
      element.classList.toggle("linked", side === other && linked.has(index));
      element.lastChild.textContent = value >= 0.005 ? percent(value) : "";
    });
  }
  if (panel.matrix && state.view === "lines") drawLines(panel, active);
}

function paintGrid(panel, active) {
  panel.grid.classList.toggle("pointed", Boolean(active));
  const columns = panel.model.source.length;
  panel.cells.forEach((cell, place) => {
    const [row, column] = [Math.floor(place / columns), place % columns];
    const lit = active && (active.side === "cell" ? row === active.row || column === active.column
      : active.index === (active.side === "target" ? row : column));
    cell.classList.toggle("lit", Boolean(lit));
  });
}

const paintAll = () => panels.forEach(paint);

function whereIs(element) {
  const { side, index, row, column } = element.dataset;
  const panel = panels.find((candidate) => candidate.root.contains(element));
  return side === "cell" ? { panel, side, row: Number(row), column: Number(column) } : { panel, side, index: Number(index) };
}

"use strict";
// Keys, pointer, the controls at the top, and the layout of the panels that page.js draws.

// ---- keyboard and pointer ------------------------------------------------------------------------------------------

function partner(panel, active) {
  const other = active.side === "target" ? "source" : "target";
  const best = panel.matrix && weightsOf(panel, active).reduce((one, next) => (next.value > one.value ? next : one));
  return panel.words[other][best ? best.index : Math.min(active.index, panel.words[other].length - 1)];
}

function neighbourWord(active, key) {
  const { panel, side, index } = active;
  const row = panel.words[side];
  const columns = panel.stage.classList.contains("columns");
  const leftwards = getComputedStyle(row[0].parentElement).direction === "rtl";
  const sideways = leftwards ? ["ArrowLeft", "ArrowRight"] : ["ArrowRight", "ArrowLeft"];
  const [onward, back] = columns ? ["ArrowDown", "ArrowUp"] : sideways;
  const [toTarget, toSource] = columns ? ["ArrowRight", "ArrowLeft"] : ["ArrowDown", "ArrowUp"];
  if (key === "Home") return row[0];
  if (key === "End") return row[row.length - 1];
  if (key === onward) return row[index + 1];
  if (key === back) return row[index - 1];
  return key === (side === "source" ? toTarget : toSource) ? partner(panel, active) : null;
}

// Row -1 is the source words above the grid, column -1 the target words beside it.
function neighbourCell(active, key) {
  const { panel } = active;
  const [rows, columns] = [panel.words.target.length, panel.words.source.length];
  let row = active.side === "cell" ? active.row : active.side === "target" ? active.index : -1;
  let column = active.side === "cell" ? active.column : active.side === "source" ? active.index : -1;
  row = clamp(row + (key === "ArrowDown") - (key === "ArrowUp"), -1, rows - 1);
  column = clamp(column + (key === "ArrowRight") - (key === "ArrowLeft"), -1, columns - 1);
  if (key === "Home") column = row < 0 ? 0 : -1;
  if (key === "End") column = columns - 1;
  if (row < 0) return panel.words.source[column];
  return column < 0 ? panel.words.target[row] : panel.cells[row * columns + column];
}

const KEYS = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"];
const spot = (event) => event.target.closest && event.target.closest("[data-side]");
// Where the pointer is, and where it was when the keyboard took over: a word that scrolls under a pointer at rest is not
// pointed at.
const pointer = { place: "", resting: "" };

function listenToPointer(container) {
  const placeOf = (event) => `${event.clientX} ${event.clientY}`;
  const point = (active) => { hovered = active; paintAll(); };
  document.addEventListener("pointermove", (event) => {
    pointer.place = placeOf(event);
    if (pointer.place !== pointer.resting) pointer.resting = "";
  });
  container.addEventListener("pointerover", (event) => {
    if (event.pointerType === "touch") return; // a tap focuses; a hover would stay behind
    if (placeOf(event) === pointer.resting) return;
    pointer.place = placeOf(event);
    const element = spot(event);
    if (element || hovered) point(element ? whereIs(element) : null);
  });
  container.addEventListener("pointerleave", () => hovered && point(null));
  container.addEventListener("click", (event) => spot(event) && spot(event).focus());
}

function listenToFocus(container) {
  container.addEventListener("focusin", (event) => {
    const element = spot(event);
    focused = element ? whereIs(element) : null;
    if (element) {
      if (element.matches(":focus-visible")) {
        hovered = null; // the keyboard is the last to have spoken
        pointer.resting = pointer.place;
      }
      // One stop for the Tab key in each row of words, or in the grid.
      const group = element.closest(".words, .grid");
      group.querySelectorAll("[tabindex='0']").forEach((other) => other.setAttribute("tabindex", "-1"));
      element.setAttribute("tabindex", "0");
    }
    paintAll();
  });
  container.addEventListener("focusout", (event) => {
    if (container.contains(event.relatedTarget)) return;
    focused = null;
    paintAll();
  });
}

function listenToKeys(container) {
  container.addEventListener("keydown", (event) => {
    const element = spot(event);
    if (!element || !KEYS.includes(event.key) || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const inGrid = element.closest(".grid");
    const next = (inGrid ? neighbourCell : neighbourWord)(whereIs(element), event.key);
    if (!next) return;
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest", inline: "nearest" }); // all of it; by itself the browser may show a part
  });
  // What a word tells may lie over other words: Escape takes it away, whether pointer or keyboard has brought it.
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !(hovered || focused)) return;
    hovered = null;
    if (focused) document.activeElement.blur();
    else paintAll();
  });
}

// ---- the page ------------------------------------------------------------------------------------------------------

// While one layout after another is tried, the page must not get shorter, or the window loses its place in it.
function keepingPlace(change) {
  const { style, offsetHeight } = byId("panels");
  style.minHeight = `${offsetHeight}px`;
  change();
  style.minHeight = "";
}

// All panels lie the same way: across if every sentence fits into one line, else in columns.
function chooseLayout() {
  const stages = panels.filter((panel) => panel.stage).map((panel) => panel.stage);
  const set = (name, on) => stages.forEach((stage) => stage.classList.toggle(name, on));
  set("long", panels.some((panel) => Math.max(panel.model.source.length, panel.model.target.length) > 30));
  set("columns", false);
  set("across", state.view === "lines");
  const overflows = (list) => list.scrollWidth > list.clientWidth;
  if (state.view !== "lines" || !stages.some((stage) => [...stage.querySelectorAll(".words")].some(overflows))) return;
  set("across", false);
  set("columns", true);
}

function layOut() {
  keepingPlace(chooseLayout);
  for (const panel of panels) {
    if (panel.matrix && state.view === "grid") sizeGrid(panel);
    else if (panel.stage) paint(panel);
  }
}

function render() {
  const sentence = data.sentences[state.sentence];
  hovered = focused = null;
  byId("sentence").value = state.sentence;
  byId("previous").disabled = state.sentence === 0;
  byId("next").disabled = state.sentence >= data.sentences.length - 1;
  byId("reference").hidden = !sentence.reference;
  byId("reference").textContent = sentence.reference;
  byId("link-key").hidden = !state.links || !sentence.models.some((model) => model.links.length);
  document.body.className = `${state.view}-view`;
  const longest = Math.max(0, ...sentence.models.map((model) => model.source.length));
  const room = state.view === "grid" ? clamp(longest * 17 + 170, 352, 1500) : 352;
  const container = byId("panels");
  container.style.setProperty("--panel-min", `${room}px`);
  panels = sentence.models.map(makePanel);
  container.replaceChildren(...panels.map((panel) => panel.root));
  layOut();
  paintAll();
}

function start() {
  byId("title").textContent = data.title;
  if (data.title) document.title = `${data.title} · Sightline`;
  if (!data.sentences.length) {
    byId("controls").hidden = document.querySelector(".legend").hidden = true;
    byId("panels").append(make("p", "none", "There are no sentences to show."));
    return;
  }
  data.sentences.forEach((sentence, index) => {
    const text = [...(sentence.models[0] ? sentence.models[0].source : []).join(" ")];
    const label = `${index + 1}. ${text.length > 70 ? `${text.slice(0, 69).join("")}…` : text.join("")}`;
    byId("sentence").append(make("option", "", label, { value: index }));
  });
  const go = (index) => {
    const focused = document.activeElement; // some browsers take the focus from a button as it is switched off
    state.sentence = index;
    render();
    if (focused.disabled) byId("sentence").focus(); // the last step switched its own button off
  };
  byId("sentence").addEventListener("change", (event) => go(Number(event.target.value)));
  byId("previous").addEventListener("click", () => go(state.sentence - 1));
  byId("next").addEventListener("click", () => go(state.sentence + 1));
  byId("links").addEventListener("change", (event) => { state.links = event.target.checked; render(); });
  document.querySelectorAll("[name='view']").forEach((radio) =>
    radio.addEventListener("change", () => { state.view = radio.value; render(); }));
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  for (const listen of [listenToPointer, listenToFocus, listenToKeys]) listen(byId("panels"));
  // Firefox keeps form values over a reload; the page starts from its own.
  byId("controls").reset();
  new ResizeObserver(layOut).observe(byId("panels"));
  render();
}

start();

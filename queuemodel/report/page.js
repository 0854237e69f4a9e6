// What all pages share: elements, numbers as people read them, tables, controls, settings in the link. A page has `specs`
// of its controls, the settings that it begins with (`start`), `layOut`, and `refresh`, which shows what follows.

const data = JSON.parse(document.getElementById("data").textContent);
const page = document.getElementById("page");

/** An element; attributes that are functions listen, texts cannot become markup. */
function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

const digits = (value, count = 3) => Number(value.toPrecision(count));

/** Four significant digits. */
function readable(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "-";
  if (typeof value !== "number") return String(value);
  if (!Number.isFinite(value)) return "none";
  return String(Number.isInteger(value) ? value : digits(value, 4));
}

const counted = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
const percent = (share, count = 4) => `${digits(100 * share, count)} %`;

/** A table of rows with the same keys; `show` says how a column reads where not as it is. */
function table(caption, rows, { show = {}, marked = null } = {}) {
  if (!rows.length) return h("p", {}, "Nothing to show.");
  const names = Object.keys(rows[0]);
  const isNumber = (value) => /^-?[\d.,]+(e-?\d+)?( %)?$/.test(value);
  const numbers = names.filter((name) => rows.some((row) => isNumber(row[name])));
  const kind = (name, value) => ((value === null ? numbers.includes(name) : isNumber(value)) ? "number" : "words");
  const heads = names.map((name) =>
    h("th", { scope: "col", class: numbers.includes(name) ? "number" : "words" }, name.replaceAll("_", " ")));
  const body = rows.map((row, i) => {
    const cells = names.map((name) => h("td", { class: kind(name, row[name]) }, (show[name] || readable)(row[name])));
    return h("tr", i === marked ? { class: "marked" } : {}, ...cells);
  });
  const whole = h("table", {}, h("thead", {}, h("tr", {}, ...heads)), h("tbody", {}, ...body));
  const scrolled = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, whole);
  return h("div", {}, h("p", { class: "caption" }, caption), scrolled);
}

/** A picture with its table, which opens on demand; the table's caption says what is drawn. */
function figure(place, chart, caption, rows, more) {
  const open = place.querySelector("details")?.open;
  const picture = h("div");
  const numbers = folded("Table", table(caption, rows, more));
  numbers.open = Boolean(open);
  place.replaceChildren(picture, numbers);
  drawChart(picture, chart);
}

function header(...said) {
  return h("header", {}, h("h1", {}, data.title), ...said.map((one) => (one instanceof Element ? one : h("p", {}, one))));
}

/** Clauses as sentences, one below the other; those that are empty go. */
function list(said) {
  const sentence = (text) => text[0].toUpperCase() + text.slice(1) + (/[.?]$/.test(text) ? "" : ".");
  return h("ul", {}, ...said.filter(Boolean).map((one) => h("li", {}, sentence(one))));
}

function section(title, ...children) {
  return h("section", {}, h("h2", {}, title), ...children);
}

function footer() {
  const told = "The address of this page carries its settings: copy it to share them.";
  return h("footer", {}, `queuemodel ${data.version}. ${told}`);
}

/** What opens on demand. */
function folded(title, ...children) {
  return h("details", {}, h("summary", {}, title), ...children);
}

/** A labelled field for one setting, or a slider over its choices; `changed` gets a new value, null for none. */
function control(spec, changed) {
  const label = h("label", { for: spec.name }, spec.unit ? `${spec.label} (${spec.unit})` : spec.label);
  const make = spec.choices ? slider : field;
  const { parts, update } = make(spec, changed);
  const element = h("div", { class: "control" }, label, ...parts);
  element.update = update;
  return element;
}

/** A slider over `choices`, which `worded` has in words; axes stay until it rests. */
function slider({ name, choices, worded }, changed) {
  const output = h("output", { for: name });
  const range = h("input", {
    ...{ type: "range", id: name, name, min: 0, max: choices.length - 1, step: 1 },
    input: () => {
      control.dragged = true;
      changed(choices[range.value]);
    },
    change: () => {
      control.dragged = false;
      refresh();
    },
  });
  const update = (value) => {
    range.value = choices.indexOf(value);
    output.textContent = worded(value);
    range.setAttribute("aria-valuetext", worded(value));
  };
  return { parts: [range, output], update };
}

/** A field of a number, in `unit`s of `factor`, or of a text that its `pattern` accepts. */
function field(spec, changed) {
  const { name, pattern = null, placeholder = "not set" } = spec;
  const input = h("input", {
    ...{ id: name, name, placeholder, type: pattern ? "text" : "number", step: "any" },
    change: () => {
      const wrong = input.validity.badInput || !accepts(spec, input.value);
      const number = `${spec.whole ? "a whole number, " : ""}${readable(spec.least)} to ${readable(spec.most)}`;
      input.setCustomValidity(wrong ? `${spec.label}: ${pattern ? placeholder : number}` : "");
      if (input.reportValidity()) changed(read(spec, input.value));
    },
  });
  const update = (value) => {
    if (document.activeElement === input) return; // a phone's keyboard resizes the page
    input.value = value === null || pattern ? value ?? "" : digits(value / (spec.factor || 1), 12);
    input.setCustomValidity("");
  };
  return { parts: [input], update };
}

/** A number that may be none. */
function mayBe(name, label, least, most, more = {}) {
  return { name, label, least, most, ...more };
}

const PRICE = mayBe("price_per_node_hour", "price per node and hour", 0.01, 1e9);

/** The setting that a field's text stands for. */
function read(spec, text) {
  return text.trim() === "" ? null : spec.pattern ? text.trim() : Number(text) * (spec.factor || 1);
}

/** Whether a field's text may be set; a blank is none. */
function accepts(spec, text) {
  const value = Number(text);
  if (text.trim() === "") return true;
  if (spec.pattern) return spec.pattern.test(text);
  return value >= spec.least && value <= spec.most && (!spec.whole || Number.isInteger(value));
}

/** Settings that the link carries, for those specs that accept them. */
function linked(specs) {
  const found = {};
  for (const [name, word] of new URLSearchParams(location.hash.slice(1))) {
    const spec = specs.find((one) => one.name === name);
    if (spec?.choices) {
      const value = word === "" ? null : Number(word);
      if (spec.choices.includes(value)) found[name] = value;
    } else if (spec) {
      const text = word === "" || spec.pattern ? word : String(Number(word) / (spec.factor || 1));
      if (accepts(spec, text)) found[name] = word === "" || spec.pattern ? read(spec, word) : Number(word);
    }
  }
  return found;
}

/** Put what differs from the start into the link. */
function link() {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(settings)) {
    if (value !== start[name]) words.set(name, value === null ? "" : String(value));
  }
  history.replaceState(null, "", `#${words}`);
}

let settings = {};
const controls = {};

/** Change settings, show what follows, and let the link carry them. */
function set(changes) {
  Object.assign(settings, changes);
  refresh();
  link();
}

function restore() {
  settings = { ...start, ...linked(specs) };
  refresh();
}

function showControls() {
  for (const [name, element] of Object.entries(controls)) element.update(settings[name]);
}

/** Places for figures, by name. */
function placesFor(...names) {
  return Object.fromEntries(names.map((name) => [name, h("div", { id: name, class: "figure" })]));
}

function begin() {
  for (const spec of specs) controls[spec.name] = control(spec, (value) => set({ [spec.name]: value }));
  page.replaceChildren(...layOut(), footer());
  restore();
  window.addEventListener("hashchange", restore);
  window.addEventListener("resize", refresh);
}

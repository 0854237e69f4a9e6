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

/** Four significant digits. */
function readable(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "-";
  if (typeof value !== "number") return String(value);
  if (!Number.isFinite(value)) return "none";
  return String(Number.isInteger(value) ? value : Number(value.toPrecision(4)));
}

const counted = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
const percent = (share) => `${readable(100 * share)} %`;

const UNITS = { days: 86400, h: 3600, min: 60, s: 1 };

/** A time in the largest unit of which there are two. */
function duration(seconds, show = readable) {
  if (seconds === null) return "-";
  const [name, unit] = Object.entries(UNITS).find(([, one]) => seconds >= 2 * one) || ["s", 1];
  return `${show(seconds / unit)} ${name}`;
}

/** A table of rows with the same keys; `show` says how a column reads where not as it is. */
function table(caption, rows, show = {}) {
  if (!rows.length) return h("p", {}, "Nothing to show.");
  const names = Object.keys(rows[0]);
  const isNumber = (value) => /^-?[\d.,]+(e-?\d+)?( %)?$/.test(value);
  const numbers = names.filter((name) => rows.some((row) => isNumber(row[name])));
  const heads = names.map((name) => h("th", { scope: "col" }, name.replaceAll("_", " ")));
  const body = rows.map((row) => {
    const cells = names.map((name) => {
      const given = row[name] !== null;
      const kind = (given ? isNumber(row[name]) : numbers.includes(name)) ? "number" : "words";
      return h("td", { class: kind }, (show[name] || readable)(row[name]));
    });
    return h("tr", row.workers !== undefined && row.workers === table.marked ? { class: "marked" } : {}, ...cells);
  });
  const whole = [h("caption", {}, caption), h("thead", {}, h("tr", {}, ...heads)), h("tbody", {}, ...body)];
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, h("table", {}, ...whole));
}

/** A picture with its table, which opens on demand; the table's caption says what is drawn. */
function figure(place, chart, caption, rows) {
  const open = place.querySelector("details")?.open;
  const picture = h("div");
  const numbers = folded("Table", table(caption, rows));
  numbers.open = Boolean(open);
  place.replaceChildren(picture, numbers);
  drawChart(picture, chart);
}

function header(...said) {
  return h("header", {}, h("h1", {}, data.title), ...said.map((one) => (one instanceof Element ? one : h("p", {}, one))));
}

/** Sentences one below the other; those that are empty go. */
function list(said) {
  return h("ul", {}, ...said.filter(Boolean).map((one) => h("li", {}, one)));
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

/**
 * A labelled slider and a number field for one setting.
 * `spec` has name, label, unit, least, most, log, whole, factor (from the field's unit to the setting's), optional and
 * rest (where the slider rests while nothing is set); `changed` gets the new value, null for nothing.
 */
function control(spec, changed) {
  if (spec.choices && spec.choices.length) return choice(spec, changed);
  const factor = spec.factor || 1;
  const steps = 1000;
  const toPlace = (value) =>
    spec.log ? (steps * Math.log(value / spec.least)) / Math.log(spec.most / spec.least) : value;
  const fromPlace = (place) => {
    const value = spec.log ? spec.least * (spec.most / spec.least) ** (place / steps) : place;
    return spec.whole ? Math.round(value) : Number(value.toPrecision(3));
  };
  const range = h("input", {
    type: "range",
    id: `${spec.name}-slider`,
    name: spec.name,
    min: spec.log ? 0 : spec.least,
    max: spec.log ? steps : spec.most,
    step: 1,
    "aria-label": `${spec.label}, slider`,
    ...dragged((place) => changed(fromPlace(place) * factor)),
  });
  const field = h("input", {
    type: "number",
    id: spec.name,
    name: `${spec.name}-field`,
    step: "any",
    placeholder: spec.placeholder || null,
    change: () => {
      const value = field.value === "" ? null : Number(field.value);
      const empty = value === null && !field.validity.badInput;
      const wrong = empty ? !spec.optional : !accepts(spec, value);
      const bounds = `${readable(spec.least)} to ${readable(spec.limit || spec.most)}`;
      field.setCustomValidity(wrong ? `${spec.label}: ${spec.whole ? "a whole number, " : ""}${bounds}` : "");
      if (field.reportValidity()) changed(empty ? null : value * factor);
    },
  });
  const label = spec.unit ? `${spec.label} (${spec.unit})` : spec.label;
  const element = h("div", { class: "control" }, h("label", { for: spec.name }, label), range, field);
  element.update = (value) => {
    const [shown, said] = value === null ? ["", spec.placeholder || "not set"] : [value / factor, null];
    range.value = toPlace(said ? spec.rest || spec.least : shown);
    range.setAttribute("aria-valuetext", said || `${readable(shown)} ${spec.unit || ""}`);
    if (document.activeElement !== field || !said) field.value = said ? "" : Number(shown.toPrecision(12));
    field.setCustomValidity("");
  };
  return element;
}

/** A list for a setting with few values, a slider for one with more. */
function choice(spec, changed) {
  const values = [...(spec.optional ? [null] : []), ...spec.choices];
  const words = (value) => (value === null ? spec.placeholder : String(Number((value / (spec.factor || 1)).toPrecision(3))));
  const label = h("label", { for: spec.name }, spec.unit ? `${spec.label} (${spec.unit})` : spec.label);
  if (values.length < 7) {
    const options = values.map((value) => h("option", { value: String(value) }, words(value)));
    const select = h("select", { id: spec.name, name: spec.name, change: () => changed(values[select.selectedIndex]) }, ...options);
    const element = h("div", { class: "control" }, label, select);
    element.update = (value) => (select.selectedIndex = values.indexOf(value));
    return element;
  }
  const output = h("output", { for: spec.name });
  const range = h("input", {
    ...{ type: "range", id: spec.name, name: spec.name, min: 0, max: values.length - 1, step: 1 },
    "aria-label": `${spec.label}, slider`,
    ...dragged((place) => changed(values[place])),
  });
  const element = h("div", { class: "control" }, label, range, output);
  element.update = (value) => {
    range.value = values.indexOf(value);
    output.textContent = words(value);
    range.setAttribute("aria-valuetext", words(value));
  };
  return element;
}

/** What a slider does: axes stay until it rests. */
function dragged(moved) {
  return {
    input: (event) => {
      control.dragged = true;
      moved(Number(event.target.value));
    },
    change: () => {
      control.dragged = false;
      refresh();
    },
  };
}

/** A setting that may be none, on a logarithmic slider. */
function mayBe(name, label, least, most, limit, more = {}) {
  return { name, label, least, most, limit, log: true, optional: true, placeholder: "none", ...more };
}

const PRICE = mayBe("price_per_node_hour", "price of a node and hour", 0.01, 100, 1e9);

/** Whether a number in the field's unit may be set. */
function accepts(spec, value) {
  if (spec.choices && spec.choices.length) return spec.choices.includes(value * (spec.factor || 1));
  const inside = value >= spec.least && value <= (spec.limit || spec.most);
  return Number.isFinite(value) && inside && (!spec.whole || Number.isInteger(value));
}

/** Settings that the link carries, for those specs that accept them. */
function linked(specs) {
  const found = {};
  for (const [name, word] of new URLSearchParams(location.hash.slice(1))) {
    const spec = specs.find((one) => one.name === name);
    const value = Number(word);
    if (spec && spec.optional && word === "") found[name] = null;
    else if (spec && word !== "" && accepts(spec, value / (spec.factor || 1))) found[name] = value;
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

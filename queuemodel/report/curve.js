// The report of a throughput curve: what can be changed, and what follows.

const counts = first.workers;
const sized = first.workers_per_node > 1 ? "GPUs" : "workers";
const amounts = ["steps", "examples", "tokens"].find((name) => data.questions[name]) || (first.unit ? "" : "steps");
const inSteps = first.in_rounds ? "iterations" : "steps of each worker";
const work = amounts
  ? [mayBe(amounts, amounts === "steps" ? inSteps : amounts, 1, 1e15)]
  : [mayBe("epochs", "epochs", 0.01, 1e9), mayBe("dataset_size", `${first.unit} per epoch`, 1, 1e15, { whole: true })];
const goals = [
  mayBe("deadline", "deadline", 0.01, 1e5, { unit: "h", factor: 3600 }),
  { ...PRICE, unit: currency },
  mayBe("budget", "budget", 1, 1e12, { unit: currency }),
  mayBe("min_efficiency", "least efficiency", 0.01, 1),
];
const specs = [
  { name: "workers", label: first.size[0], choices: counts, worded: (n) => names[counts.indexOf(n)] },
  ...data.controls.map((one) => ({
    name: one.name, label: one.label, choices: one.choices, worded: (value) => one.words[one.choices.indexOf(value)],
  })),
  ...work,
  ...goals,
  { name: "measured", label: `measured later (${sized} = ${first.counts}/s)`, pattern: /^\s*(\d+\s*=\s*\d*\.?\d+[\s,;]*)+$/,
    placeholder: `like ${counts.at(-1)}=${digits(first.steps_per_second.at(-1) / stepsIn(first, counts.at(-1)))}` },
];
const start = {
  workers: data.questions.workers,
  ...asPredicted,
  ...Object.fromEntries([...work, ...goals].map(({ name }) => [name, data.questions[name]])),
  measured: null,
};
start.workers ??= recommended(planWorkers(first, start))?.workers ?? counts.at(-1);
const places = placesFor("recommendation", "scenario", "throughput", "answers", "step", "plan", "timeline");
for (const name of ["recommendation", "answers"]) places[name].setAttribute("aria-live", "polite");
let kept = null; // the scenario that others are compared with
let names = first.names; // of the numbers of workers, as they are on nodes

/** What follows from settings: the curve, the plan, and the answers at the chosen number of workers. */
function answer(settings) {
  const curve = curveOf(settings);
  const at = curve.workers.indexOf(settings.workers);
  const measures = measuresOf(curve, settings);
  const of = (X) => {
    const [time, cost, efficiency] = ["time", "cost", "efficiency"].map((name) => measures[name](X)[at]);
    const known = (value) => (Number.isNaN(value) ? null : value);
    const rate = X[at] / stepsIn(curve, settings.workers);
    return { rate, ...Object.fromEntries(Object.entries(curve.work).map(([unit, each]) => [unit, X[at] * each])), time: known(time), cost: known(cost), efficiency };
  };
  const [now, slow, fast] = [curve.steps_per_second, curve.lower, curve.upper].map(of);
  return { curve, at, now, slow, fast, plan: planWorkers(curve, settings) };
}

function refresh() {
  const nearest = (best, n) => (Math.abs(n - settings.workers) < Math.abs(best - settings.workers) ? n : best);
  const machines = cellOf(settings).curve;
  const whole = counts.filter((n) => fills(machines, n));
  settings.workers = (whole.length ? whole : counts).reduce(nearest);
  names = machines.names;
  const other = kept || start;
  const differ = (names) => names.some((name) => settings[name] !== other[name]);
  const present = answer(settings);
  const { curve, at } = present;
  const before = answer({ ...other, workers: settings.workers });
  const name = kept ? "kept scenario" : "as predicted";
  const changed = changes(settings, start);
  const scenario = changed ? changed + (data.by ? ` (${data.by})` : "") : "as predicted";
  showControls();
  places.scenario.replaceChildren(...[`${names[at]}; ${scenario}`, kept ? `Kept: ${changes(kept, start) || "as predicted"}` : "",
    ...compared(curve)].filter(Boolean).map((line) => h("p", {}, `${line}.`)));
  showRecommendation(present);
  showAnswers(present, differ(Object.keys(settings).filter((one) => !["workers", "measured"].includes(one))) ? before : null);
  showThroughput(curve, at, differ(Object.keys(asPredicted)) ? before.curve : null, scenario, name, typed(curve));
  if (curve.places.length) showStep(curve, at);
  showPlan(curve, present.plan);
  if (data.timeline) showTimeline(places.timeline);
}

/** Measurements that the reader typed: workers, and steps per second. */
function typed(curve) {
  const points = (settings.measured || "").matchAll(/(\d+)\s*=\s*([\d.]+)/g);
  return [...points].map(([, n, rate]) => [Number(n), Number(rate) * stepsIn(curve, Number(n))]);
}

/** How those on the curve compare with what is predicted. */
function compared(curve) {
  const said = typed(curve).filter(([n]) => counts.includes(n)).map(([n, x]) => {
    const [i, off] = [counts.indexOf(n), (x / curve.steps_per_second[counts.indexOf(n)] - 1) * 100];
    const where = x >= curve.lower[i] && x <= curve.upper[i] ? "inside" : "outside";
    return `${curve.names[i]} ${off < 0 ? "−" : "+"}${digits(Math.abs(off), 2)} %, ${where} the interval`;
  });
  return said.length ? [`Measured against predicted: ${said.join("; ")}`] : [];
}

/** What differs, in words. */
function changes(settings, from) {
  const machines = specs.filter(({ name }) => name in asPredicted && settings[name] !== from[name]);
  return machines.map(({ name, label, worded }) => `${label} ${worded(settings[name])}`).join(", ");
}

/** The first answer. */
function recommended(plan) {
  return plan.find((one) => one.workers);
}

/** The plan's answer, or why there is none and the next one, and what the fastest number of workers would add. */
function showRecommendation({ curve, plan }) {
  const best = recommended(plan);
  const said = plan.slice(0, 1).concat(best && best !== plan[0] ? best : []).map((one) => `${one.answer}. `).join("");
  const X = curve.steps_per_second.map((x, i) => (fills(curve, curve.workers[i]) ? x : 0));
  const quick = X.indexOf(Math.max(...X));
  const at = best ? best.i : quick;
  const gain = Math.round(100 * (X[quick] / X[at] - 1));
  const faster = gain > 100 ? `${digits(1 + gain / 100)} times as fast` : `${gain} % faster`;
  const dearer = Math.round(100 * ((curve.nodes[quick] / curve.nodes[at]) * (X[at] / X[quick]) - 1));
  const price = best && best.cost !== null ? ` and cost ${Math.abs(dearer)} % ${dearer < 0 ? "less" : "more"}` : "";
  const more = gain > 0
    ? `${curve.names[quick]}, the fastest on the curve, are ${faster}${price}.`
    : best ? "No other number is faster." : "";
  places.recommendation.replaceChildren(...(said + more ? [h("p", { class: "lead" }, said + more)] : []));
}

/** The answers at the chosen number of workers, with their intervals; and how they differ from those before. */
function showAnswers({ curve, at, now, slow, fast }, before) {
  const share = (value) => percent(value, 3);
  const factor = (a, b) => `×${digits(a / b)}`;
  const difference = (show) => (a, b) => `${a < b ? "−" : "+"}${show(Math.abs(a - b))}`;
  const ends = (key, show) => [slow, fast].map((one) => one[key]).sort((a, b) => a - b).map((value) => show(value)).join(" to ").replace(" % to", " to");
  const spent = [...curve.places.map((place, k) => [place, curve.shares[k][at]])].sort((a, b) => b[1] - a[1])[0];
  const tiles = [
    ["rate", `${curve.counts}/s`, digits, "", factor],
    ...Object.keys(curve.work).map((unit) =>
      [unit, `${unit}/s`, amount, unit === curve.unit ? `batch size ${curve.batch_size}` : "", factor]),
    ["time", "time to train", duration, "", difference(duration)],
    ["cost", currency ? `cost (${currency})` : "cost", amount, "", difference(amount)],
    ["efficiency", "efficiency", share, `speedup ${digits(curve.steps_per_second[at] / curve.single / curve.base_workers)}${overBase(curve)}`, null],
  ].filter(([key]) => now[key] !== null);
  const tile = (id, name, value, ...more) => h("div", { class: "tile" }, h("h3", {}, name),
    h("output", { id: `answer-${id}`, class: "value" }, value), ...more.filter(Boolean).map((line) => h("p", {}, line)));
  const boxes = tiles.map(([key, title, show, note, compare]) => {
    const interval = key === "time" ? timeEnds(now.time, fast.time, slow.time) : ends(key, show);
    const change = before && compare && before.now[key] !== null ? `${compare(now[key], before.now[key])} from ${show(before.now[key])}` : "";
    return tile(key, title, show(now[key]).toString(), interval, note, change);
  });
  if (spent && spent[1] >= 0.01) boxes.push(tile("place", "waits longest for", spent[0], `${Math.round(100 * spent[1])} % of a step`));
  const words = `${curve.names[at]}, with ${percent(data.confidence)} intervals`;
  places.answers.replaceChildren(h("p", {}, `${words}${before ? `, and changes from ${kept ? "what was kept" : "the prediction"}` : ""}.`), h("div", { class: "tiles" }, ...boxes));
}

function showPlan(curve, plan) {
  const other = plan.some((one) => one.workers_point !== one.workers);
  const costs = currency ? `cost (${currency})` : "cost";
  const every = plan.map((one) => ({
    goal: one.goal,
    ...(curve.workers_per_node > 1 ? { nodes: one.nodes ?? "none", GPUs: one.workers } : { workers: one.workers ?? "none" }),
    ...(other ? { "point estimate": one.workers_point } : {}),
    time: one.time === null ? null : timeSpan(one.time, one.time_low, one.time_high),
    [costs]: one.cost === null ? null : amount(one.cost),
    [percent(data.confidence)]: one.cost === null ? null : `${amount(one.cost_low)} to ${amount(one.cost_high)}`,
  }));
  const used = Object.keys(every[0] || {}).filter((name, i) => i < 2 || every.some((row) => row[name] !== null));
  const rows = every.map((row) => Object.fromEntries(used.map((name) => [name, row[name]])));
  const unknown = work.filter(({ name }) => settings[name] === null).map(({ label }) => label);
  const missing = unknown.length ? `Times and costs need ${unknown.join(" and ")}: set them in the fields. ` : "";
  const servers = curve.nodes.some((nodes, i) => nodes > Math.ceil(curve.workers[i] / curve.workers_per_node));
  const words = `${missing}The price is of each node${servers ? ", parameter servers included" : ""}. `
    + "A number meets its goal at the slower end of the interval, or else by the point estimate only.";
  const shown = rows.length ? table("Choices", rows) : h("p", {}, "No goal is set.");
  places.plan.replaceChildren(h("p", {}, words), shown);
}

/** One recorded step or round: its picture, which `refresh` draws, and its table. */
function recorded() {
  const { what, note, lanes, spans } = data.timeline;
  const columns = ["name", "requested (s)", "began (s)", "ended (s)", "bytes"];
  const rows = spans.map(([lane, ...cells]) =>
    Object.fromEntries([["where", lanes[lane]], ...columns.map((name, i) => [name, cells[i]])]),
  );
  const numbers = folded("Table of its operations", table(`One recorded ${what}`, rows));
  return section(`One recorded ${what}`, h("p", {}, note), places.timeline, numbers);
}

function layOut() {
  const button = (name, click) => h("button", { type: "button", click }, name);
  const buttons = [
    button("Recommended number", () =>
      set({ workers: recommended(planWorkers(curveOf(settings), settings))?.workers ?? settings.workers })),
    button("Keep to compare", () => { kept = { ...settings }; refresh(); }),
    button("As predicted", () => { kept = null; set({ ...start, measured: settings.measured }); }),
  ];
  const machines = data.controls.length ? "" : "predict other machines with Python: this page cannot change them";
  const parts = [
    header(places.recommendation, `Predicted for ${data.answer}.`),
    section("Throughput", places.scenario, places.throughput),
    section("Answers", places.answers),
    h("fieldset", { class: "controls" }, h("legend", {}, "What if"), ...Object.values(controls), ...buttons),
    section("The plan", places.plan),
  ];
  if (first.places.length) parts.push(section("Where a step's time goes", places.step));
  if (data.timeline) parts.push(recorded());
  if (data.parameters.length) {
    const details = data.details.length ? folded("What they are", list(data.details)) : null;
    parts.push(section("Fitted parameters", table("What was fitted", data.parameters), ...(details ? [details] : [])));
  }
  parts.push(section("How it was predicted, and its limits", list([...data.about, machines])));
  return parts;
}

unpack().then(begin, () => page.replaceChildren("This page's data need a browser of 2023 or later."));

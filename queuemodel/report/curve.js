// The report of a throughput curve: what can be changed, and what follows.

const { workers: shownFirst, min_efficiency: leastEfficiency } = data.questions;
const counts = cells[0].curve.workers;
const inSteps = cells[0].curve.in_rounds ? "iterations" : "steps of each worker";
const amounts = ["steps", "examples", "tokens"].find((name) => data.questions[name]) || (cells[0].curve.unit ? "" : "steps");
const work = amounts
  ? [mayBe(amounts, amounts === "steps" ? inSteps : amounts, 1, 1e9, 1e15, { placeholder: "unknown" })]
  : [
      { name: "epochs", label: "epochs", least: 0.01, most: 1000, limit: 1e9, log: true },
      mayBe("dataset_size", `${cells[0].curve.unit} per epoch`, 1, 1e9, 1e15, { whole: true, placeholder: "unknown" }),
    ];
const start = {
  workers: shownFirst,
  ...asPredicted,
  ...Object.fromEntries(work.map(({ name, optional }) => [name, data.questions[name] || (optional ? null : 1)])),
  ...Object.fromEntries(["deadline", "price_per_node_hour", "budget"].map((name) => [name, data.questions[name]])),
  min_efficiency: leastEfficiency ?? 0.5,
};
const specs = [
  { name: "workers", label: "workers", least: counts[0], most: counts.at(-1), whole: true },
  ...data.controls.map(({ least, most, factor, value, ...one }) => ({
    ...one, factor, least: least / factor, most: most / factor, log: true, optional: value === null,
    placeholder: "as profiled", rest: Math.sqrt(least * most) / factor,
  })),
  ...work,
  mayBe("deadline", "deadline", 0.01, 1000, 1e5, { unit: "h", factor: 3600 }),
  { ...PRICE, unit: currency },
  mayBe("budget", "budget", 1, 1e5, 1e12, { unit: currency }),
  mayBe("min_efficiency", "least efficiency", 0.01, 1, 1),
];
start.workers ??= recommended(planWorkers(cells[0].curve, start))?.workers ?? counts[Math.min(3, counts.length - 1)];
const places = placesFor("recommendation", "scenario", "throughput", "answers", "scenarios", "step", "plan", "timeline");
for (const name of ["recommendation", "answers"]) places[name].setAttribute("aria-live", "polite");
let kept = null; // the scenario that others are compared with

/** What follows from settings: the curve, the plan, and the answers at the chosen number of workers. */
function answer(settings) {
  const curve = curveOf(settings);
  const at = curve.workers.indexOf(settings.workers);
  const measures = measuresOf(curve, settings);
  const known = (value) => (Number.isNaN(value) ? null : value);
  const of = (X) => {
    const [time, cost] = ["time", "cost"].map((name) => known(measures[name](X)[at]));
    return { steps: X[at], examples: X[at] * curve.batch_size, time, cost };
  };
  const [now, slow, fast] = [curve.steps_per_second, curve.lower, curve.upper].map(of);
  return { settings: { ...settings }, curve, at, now, slow, fast, plan: planWorkers(curve, settings) };
}

function refresh() {
  const nearest = (best, n) => (Math.abs(n - settings.workers) < Math.abs(best - settings.workers) ? n : best);
  const { curve } = cells.find(({ choices }) => Object.entries(choices).every(([name, value]) => settings[name] === value));
  const whole = counts.filter((n) => fills(curve, n));
  settings.workers = (whole.length ? whole : counts).reduce(nearest);
  const other = kept || start;
  const differ = (names) => names.some((name) => settings[name] !== other[name]);
  const present = answer(settings);
  const before = answer({ ...other, workers: settings.workers });
  const machines = differ(Object.keys(asPredicted));
  const changed = differ(Object.keys(settings).filter((name) => name !== "workers"));
  showControls();
  table.marked = settings.workers;
  const scenario = changes(settings, start).join(", ") || "as predicted";
  places.scenario.replaceChildren(`${named(present.curve, settings.workers)}; ${scenario}.`);
  showRecommendation(present);
  showAnswers(present, changed ? before : null);
  showThroughput(present.curve, machines ? before.curve : null, scenario, kept ? "kept scenario" : "as predicted");
  showScenarios(kept || differ(Object.keys(settings)) ? answer(other) : null, present);
  showStep(present.curve);
  showPlan(present.curve, present.plan);
  if (data.timeline) showTimeline(places.timeline);
}

const three = (value) => Number(value.toPrecision(3));
const hours = (value) => duration(value, three);
const span = ({ now, slow, fast }) => (now.time === null ? "-" : timeSpan(now.time, fast.time, slow.time));
const costs = currency ? `cost (${currency})` : "cost";

/** Value of a control as people read it. */
function worded(spec, value) {
  return value === null ? spec.placeholder : `${three(value / (spec.factor || 1))} ${spec.unit || ""}`.trim();
}

/** What of the machines differs. */
function changes(settings, from) {
  const machines = specs.filter(({ name }) => name in asPredicted && settings[name] !== from[name]);
  return machines.map((spec) => `${spec.label} ${worded(spec, settings[spec.name])}`);
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
  const at = best ? curve.workers.indexOf(best.workers) : quick;
  const gain = Math.round(100 * (X[quick] / X[at] - 1));
  const faster = gain > 100 ? `${three(1 + gain / 100)} times as fast` : `${gain} % faster`;
  const dearer = Math.round(100 * ((curve.nodes[quick] / curve.nodes[at]) * (X[at] / X[quick]) - 1));
  const price = best && best.cost !== null ? ` and cost ${Math.abs(dearer)} % ${dearer < 0 ? "less" : "more"}` : "";
  const more = gain > 0
    ? `${named(curve, curve.workers[quick])}, the fastest on the curve, are ${faster}${price}.`
    : best ? "No other number of workers is faster." : "";
  places.recommendation.replaceChildren(h("p", { class: "lead" }, said + more));
}

/** How two answers differ: a factor, or a difference. */
const factor = (now, before) => `×${three(now / before)}`;
const difference = (now, before, show = three) => `${now < before ? "−" : "+"}${show(Math.abs(now - before))}`;

function showAnswers({ curve, at, now, slow, fast }, before) {
  const ends = (name, show) => (now[name] === null ? "" : [slow, fast].map((one) => one[name])
    .sort((a, b) => a - b).map((value) => show(value)).join(" to "));
  const than = (name, compare) => (before && now[name] !== null && before.now[name] !== null ? compare(now[name], before.now[name]) : "");
  const knee = curve.saturation_workers;
  const spent = [...curve.places.map((place, k) => [place, curve.shares[k][at]])].sort((a, b) => b[1] - a[1])[0];
  const tiles = [
    ["steps_per_second", "steps/s", three(now.steps), ends("steps", three), than("steps", factor)],
    ["examples_per_second", `${curve.unit}/s`, curve.unit ? three(now.examples) : "-", `batch size ${curve.batch_size}`, ""],
    ["time", "time to train", hours(now.time), span({ now, slow, fast }).replace(/.*\((.*)\)/, "$1"),
      than("time", (a, b) => difference(a, b, hours))],
    ["cost", costs, now.cost === null ? "-" : amount(now.cost), ends("cost", amount), than("cost", difference)],
    ["efficiency", "efficiency", percent(three(now.steps / (curve.workers[at] * curve.single))),
      `speedup${overBase(curve)} ${three(now.steps / curve.single / curve.base_workers)}`, ""],
    ["place", "waits longest for", spent ? spent[0] : "-", spent ? `${Math.round(100 * spent[1])} % of a step` : "",
      knee === null ? "" : `N* ${three(knee)}`],
  ];
  const boxes = tiles.filter(([, , value]) => value !== "-").map(([id, name, value, more, change]) => {
    const output = h("output", { id: `answer-${id}`, class: "value" }, String(value));
    return h("div", { class: "tile" }, h("h3", {}, name), output, h("p", {}, more), h("p", { class: "change" }, change));
  });
  const words = `${named(curve, curve.workers[at])}, with ${percent(data.confidence)} intervals${before ? ", and the difference" : ""}.`;
  places.answers.replaceChildren(h("p", {}, words), h("div", { class: "tiles" }, ...boxes));
}

/** The kept scenario and the present one side by side. */
function showScenarios(first, second) {
  if (!first) {
    const words = "Change a setting, or keep the present scenario, to see two side by side.";
    places.scenarios.replaceChildren(h("p", {}, words));
    return;
  }
  const row = (what, show, compare) => {
    const [a, b] = [first, second].map(show);
    return { what, [kept ? "kept" : "as predicted"]: a, now: b, difference: a === b || !compare ? "" : compare(second, first) };
  };
  const asked = specs.map((spec) => row(spec.unit ? `${spec.label} (${spec.unit})` : spec.label,
    ({ settings }) => (settings[spec.name] === null ? spec.placeholder || "none" : three(settings[spec.name] / (spec.factor || 1)))));
  const interval = (name, show) => ({ now, slow, fast }) => {
    if (now[name] === null) return "-";
    const [low, high] = [slow[name], fast[name]].sort((a, b) => a - b);
    return `${show(now[name])} (${show(low)} to ${show(high)})`;
  };
  const rows = [
    ...asked.filter((one) => one.now !== Object.values(one)[1]),
    row("steps/s", interval("steps", three), (a, b) => factor(a.now.steps, b.now.steps)),
    row("time to train", span, (a, b) => difference(a.now.time, b.now.time, hours)),
    row("cost", interval("cost", money), (a, b) => (a.now.cost === null || b.now.cost === null ? "" : difference(a.now.cost, b.now.cost))),
  ].filter((one) => one.now !== "-");
  places.scenarios.replaceChildren(table(kept ? "The scenario that was kept, and the present one" : "As predicted, and the present scenario", rows));
}

function showPlan(curve, plan) {
  const other = plan.some((one) => one.workers_point !== one.workers);
  const rows = plan.map((one) => ({
    goal: one.goal,
    ...(curve.workers_per_node > 1 ? { nodes: one.nodes ?? "none", GPUs: one.workers } : { workers: one.workers ?? "none" }),
    ...(other ? { "point estimate": one.workers_point } : {}),
    time: one.time === null ? null : timeSpan(one.time, one.time_low, one.time_high),
    [costs]: one.cost === null ? null : amount(one.cost),
    [percent(data.confidence)]: one.cost === null ? null : `${amount(one.cost_low)} to ${amount(one.cost_high)}`,
  }));
  const unknown = work.some(({ name }) => settings[name] === null);
  const missing = unknown ? `Times and costs need the ${work.at(-1).label}: set them above. ` : "";
  const servers = curve.nodes.some((nodes, i) => nodes > Math.ceil(curve.workers[i] / curve.workers_per_node));
  const paid = `The price is of each node${servers ? ", parameter servers included" : ""}.`;
  const words = `${missing}${paid} A recommended number meets its goal at the slower end of the interval.`;
  const shown = rows.length ? table("Choices of workers", rows) : h("p", {}, "No goal is set.");
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
  const keep = h("button", { type: "button", click: () => { kept = { ...settings }; refresh(); } }, "Keep to compare");
  const follow = h("button", {
    type: "button",
    click: () => set({ workers: recommended(planWorkers(curveOf(settings), settings))?.workers ?? settings.workers }),
  }, "Recommended workers");
  const back = h("button", { type: "button", click: () => { kept = null; set(start); } }, "As predicted");
  const machines = data.controls.length
    ? "Machines other than those predicted are interpolated between curves that Python computed, within about 1 %."
    : "Workers, epochs, deadline and price can be changed here; predict other machines with Python.";
  const parts = [
    header(places.recommendation),
    section("Throughput", places.scenario, places.throughput),
    section("Answers", places.answers),
    h("fieldset", { class: "controls" }, h("legend", {}, "What if"), ...Object.values(controls), follow, keep, back),
    section("Two scenarios", places.scenarios),
    section("Where a step's time goes", places.step),
    section("The plan", places.plan),
  ];
  if (data.timeline) parts.push(recorded());
  if (data.parameters.length)
    parts.push(section("Fitted parameters", table("What was fitted, and how far to trust it", data.parameters)));
  parts.push(section("How it was predicted, and its limits", list([data.caption, ...data.about, machines])));
  return parts;
}

unpack().then(begin, () => page.replaceChildren("This page's data need a browser of 2023 or later."));

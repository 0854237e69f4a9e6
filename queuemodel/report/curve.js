// The report of a throughput curve: what can be changed, and what follows.

const { workers: shownFirst, min_efficiency: leastEfficiency, epochs, ...questions } = data.questions;
const counts = cells[0].curve.workers;
const start = {
  workers: shownFirst,
  ...asPredicted,
  epochs: epochs || 1,
  ...questions,
  min_efficiency: leastEfficiency ?? 0.5,
};
const specs = [
  { name: "workers", label: "workers", least: counts[0], most: counts.at(-1), whole: true },
  ...data.controls.map(({ least, most, factor, value, ...one }) => ({
    ...one, factor, least: least / factor, most: most / factor, log: true, optional: value === null,
    placeholder: "as profiled", rest: Math.sqrt(least * most) / factor,
  })),
  { name: "epochs", label: "epochs", least: 0.01, most: 1000, limit: 1e9, log: true },
  mayBe("dataset_size", "examples per epoch", 1, 1e9, 1e15, { whole: true, placeholder: "unknown" }),
  mayBe("deadline", "deadline", 0.01, 1000, 1e5, { unit: "h", factor: 3600 }),
  PRICE,
  mayBe("budget", "budget", 1, 1e5, 1e12),
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
  const examples = settings.dataset_size === null ? null : settings.epochs * settings.dataset_size;
  const price = settings.price_per_node_hour;
  const of = (x) => {
    const time = examples === null ? null : examples / (x * curve.batch_size);
    const cost = time === null || price === null ? null : (time / 3600) * price * curve.nodes[at];
    return { steps: x, examples: x * curve.batch_size, time, cost };
  };
  const [now, slow, fast] = [curve.steps_per_second, curve.lower, curve.upper].map((X) => of(X[at]));
  return { settings: { ...settings }, curve, at, now, slow, fast, plan: planWorkers(curve, settings) };
}

function refresh() {
  const nearest = (best, n) => (Math.abs(n - settings.workers) < Math.abs(best - settings.workers) ? n : best);
  settings.workers = counts.reduce(nearest);
  const other = kept || start;
  const differ = (names) => names.some((name) => settings[name] !== other[name]);
  const present = answer(settings);
  const before = answer({ ...other, workers: settings.workers });
  const machines = differ(Object.keys(asPredicted));
  const changed = differ(Object.keys(settings).filter((name) => name !== "workers"));
  showControls();
  table.marked = settings.workers;
  const scenario = changes(settings, start).join(", ") || "as predicted";
  places.scenario.replaceChildren(`${counted(settings.workers, "worker")}; ${scenario}.`);
  showRecommendation(present);
  showAnswers(present, changed ? before : null);
  showThroughput(present.curve, machines ? before.curve : null, scenario, kept ? "kept scenario" : "as predicted");
  showScenarios(kept || differ(Object.keys(settings)) ? answer(other) : null, present);
  showStep(present.curve);
  showPlan(present.plan);
  if (data.timeline) showTimeline(places.timeline);
}

const three = (value) => Number(value.toPrecision(3));
const hours = (value) => duration(value, three);
const money = (value) => (value === null ? "-" : three(value));

/** Value of a control as people read it. */
function worded(spec, value) {
  return value === null ? spec.placeholder : `${three(value / (spec.factor || 1))} ${spec.unit || ""}`.trim();
}

/** What of the machines differs. */
function changes(settings, from) {
  const machines = specs.filter(({ name }) => name in asPredicted && settings[name] !== from[name]);
  return machines.map((spec) => `${spec.label} ${worded(spec, settings[spec.name])}`);
}

/** The first of these goals that has an answer. */
function recommended(plan) {
  const goals = ["cheapest within", "fastest within", "cheapest", "smallest within", "efficiency"];
  return goals.map((goal) => plan.find((one) => one.goal.startsWith(goal) && one.workers)).find(Boolean);
}

/** The recommendation, and what the fastest number of workers would add. */
function showRecommendation({ curve, plan }) {
  const best = recommended(plan);
  const X = curve.steps_per_second;
  const quick = X.indexOf(Math.max(...X));
  if (!best) {
    const most = counted(curve.workers[quick], "worker");
    const words = `No number of workers on the curve meets a goal. ${most} are the fastest.`;
    places.recommendation.replaceChildren(h("p", { class: "lead" }, words));
    return;
  }
  const at = curve.workers.indexOf(best.workers);
  const one = best.workers === 1 ? "es" : "";
  const does = best.time === null
    ? `process${one} ${three(X[at] * curve.batch_size)} ${curve.unit || "steps"}/s`
    : `finish${one} in ${duration(best.time, three)}`;
  const cost = best.cost === null ? "" : ` and cost${one && "s"} ${three(best.cost)}`;
  const gain = Math.round(100 * (X[quick] / X[at] - 1));
  const faster = gain > 100 ? `${three(1 + gain / 100)} times as fast` : `${gain} % faster`;
  const dearer = Math.round(100 * ((curve.nodes[quick] / curve.nodes[at]) * (X[at] / X[quick]) - 1));
  const price = best.cost === null ? "" : ` and cost ${Math.abs(dearer)} % ${dearer < 0 ? "less" : "more"}`;
  const more = gain > 0
    ? `${counted(curve.workers[quick], "worker")}, the fastest on the curve, are ${faster}${price}.`
    : "No other number of workers is faster.";
  const late = plan.some(({ goal, workers }) => goal.startsWith("smallest") && !workers);
  const least = settings.epochs * settings.dataset_size / (X[quick] * curve.batch_size);
  const unmet = late ? `The deadline is not met: ${counted(curve.workers[quick], "worker")} take ${hours(least)}. ` : "";
  const [low, high] = [best.workers_low ?? "?", best.workers_high ?? "?"];
  const interval = `${best.goal}; ${percent(data.confidence)} interval ${low} to ${high} workers`;
  const lead = `${unmet}${counted(best.workers, "worker")} ${does}${cost} (${interval}). ${more}`;
  places.recommendation.replaceChildren(h("p", { class: "lead" }, lead));
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
    ["time", "time to train", hours(now.time), ends("time", hours), than("time", (a, b) => difference(a, b, hours))],
    ["cost", "cost", now.cost === null ? "-" : three(now.cost), ends("cost", three), than("cost", difference)],
    ["efficiency", "efficiency", percent(three(now.steps / (curve.workers[at] * curve.single))),
      `speedup${overBase(curve)} ${three(now.steps / curve.single / curve.base_workers)}`, ""],
    ["place", "waits longest for", spent ? spent[0] : "-", spent ? `${Math.round(100 * spent[1])} % of a step` : "",
      knee === null ? "" : `N* ${three(knee)}`],
  ];
  const boxes = tiles.filter(([, , value]) => value !== "-").map(([id, name, value, more, change]) => {
    const output = h("output", { id: `answer-${id}`, class: "value" }, String(value));
    return h("div", { class: "tile" }, h("h3", {}, name), output, h("p", {}, more), h("p", { class: "change" }, change));
  });
  const words = `${counted(curve.workers[at], "worker")}, with ${percent(data.confidence)} intervals${before ? ", and the difference" : ""}.`;
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
    row("time to train", interval("time", hours), (a, b) => difference(a.now.time, b.now.time, hours)),
    row("cost", interval("cost", three), (a, b) => (a.now.cost === null || b.now.cost === null ? "" : difference(a.now.cost, b.now.cost))),
  ].filter((one) => one.now !== "-");
  places.scenarios.replaceChildren(table(kept ? "The scenario that was kept, and the present one" : "As predicted, and the present scenario", rows));
}

function showPlan(plan) {
  const within = (value, low, high, show) => show(value) + (low === null ? "" : ` (${show(low)} to ${show(high)})`);
  const known = (n) => (n === null ? "?" : String(n));
  const rows = plan.map((one) => ({
    goal: one.goal,
    workers: one.workers ?? "none",
    "workers, interval": one.workers_low === null && one.workers_high === null ? ""
      : `${known(one.workers_low)} to ${known(one.workers_high)}`,
    time: within(one.time, one.time_low, one.time_high, hours),
    cost: within(one.cost, one.cost_low, one.cost_high, money),
  }));
  const missing = settings.dataset_size === null ? "Times and costs need the examples per epoch: set them above. " : "";
  const paid = cells[0].curve.nodes.some((nodes, i) => nodes > counts[i]) ? ", parameter servers included" : "";
  const words = `${missing}The price is of each node${paid}.`;
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

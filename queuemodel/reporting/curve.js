// The report of a throughput curve: settings, and what follows from them.

const network = data.network;
const start = startSettings();

function startSettings() {
  const asked = data.questions;
  const workers = data.curve.workers;
  const settings = {
    workers: asked.workers || workers[Math.min(3, workers.length - 1)],
    epochs: asked.epochs || 1,
    dataset_size: asked.dataset_size,
    deadline: asked.deadline,
    price_per_node_hour: asked.price_per_node_hour,
    min_efficiency: asked.min_efficiency === null ? 0.5 : asked.min_efficiency,
  };
  if (!network) return settings;
  const machines = { ...network.settings, most_workers: workers.at(-1) };
  if (machines.bandwidth === null) machines.bandwidth = network.bandwidth;
  return { ...settings, ...machines };
}

/** What the page says of settings: the curve, and the plan; the numbers of Python. */
function answer(settings) {
  const curve = network ? solveNetwork(network, settings) : { ...data.curve, saturation_workers: knee(data.curve) };
  return { curve, plan: planWorkers(curve, settings) };
}

const knee = (curve) => (curve.saturation_workers === null ? Infinity : curve.saturation_workers);

const MBIT = 125000;
const specs = [
  { name: "workers", label: "workers", least: data.curve.workers[0], most: data.curve.workers.at(-1), whole: true },
  ...(network ? machineSpecs() : []),
  { name: "epochs", label: "epochs", least: 1, most: 1000, limit: 1e9, log: true },
  {
    name: "dataset_size", label: "examples per epoch", least: 1, most: 1e9, limit: 1e15, log: true, whole: true,
    optional: true, placeholder: "not known",
  },
  {
    name: "deadline", label: "deadline", unit: "h", factor: 3600, least: 0.01, most: 1000, limit: 1e5, log: true,
    optional: true, placeholder: "none",
  },
  {
    name: "price_per_node_hour", label: "price of a node and hour", least: 0.01, most: 100, limit: 1e9, log: true,
    optional: true, placeholder: "none",
  },
  { name: "min_efficiency", label: "least efficiency", least: 0.01, most: 1, limit: 1, log: true, optional: true },
];

function machineSpecs() {
  const counts = Object.keys(network.servers).map(Number);
  const rest = network.transferred[0] / (network.demands.fetch || 1) / network.link_efficiency / MBIT;
  const link = (network.bandwidth || 0) / MBIT || rest || 1000;
  const own = network.batch_size;
  return [
    {
      name: "parameter_servers", label: "parameter servers", least: Math.min(...counts), most: Math.max(...counts),
      whole: true,
    },
    {
      name: "bandwidth", label: "bandwidth of each host's link", unit: "Mbit/s", factor: MBIT, least: link / 100,
      most: link * 100, log: true, optional: network.bandwidth === null, placeholder: "as profiled", rest: link,
    },
    { name: "accelerator_speed", label: "accelerator speed", unit: "× profiled", least: 0.1, most: 20, log: true },
    {
      name: "batch_size", label: "batch size of a worker", least: 1, most: 64 * own, log: true, whole: true,
    },
    {
      name: "most_workers", label: "curve up to", unit: "workers", least: 1, most: Math.min(network.most_workers, 128),
      limit: network.most_workers, whole: true,
    },
  ].filter((spec) => spec.name !== "bandwidth" || network.transferred.some((size) => size > 0));
}

const controls = Object.fromEntries(specs.map((spec) => [spec.name, control(spec, (value) => set(spec.name, value))]));
const places = Object.fromEntries(
  ["answers", "throughput", "step", "plan"].map((name) => [name, h("div", { id: name, class: "figure" })]),
);
places.answers.setAttribute("aria-live", "polite");

let settings = { ...start };
let solved = { key: "", told: null };

function set(name, value) {
  settings[name] = value;
  if (name === "parameter_servers" && !network.servers[value]) settings[name] = start[name];
  refresh();
  link(settings, start);
}

function restore() {
  settings = { ...start, ...linked(specs) };
  if (network && !network.servers[settings.parameter_servers]) settings.parameter_servers = start.parameter_servers;
  refresh();
}

function refresh() {
  const machines = JSON.stringify({ ...settings, workers: 0 });
  if (solved.key !== machines) solved = { key: machines, told: answer(settings) };
  const { curve, plan } = solved.told;
  const nearest = (best, n) => (Math.abs(n - settings.workers) < Math.abs(best - settings.workers) ? n : best);
  settings.workers = curve.workers.reduce(nearest);
  controls.workers.limit(curve.workers.at(-1));
  for (const [name, element] of Object.entries(controls)) element.update(settings[name]);
  const at = curve.workers.indexOf(settings.workers);
  table.marked = settings.workers;
  showAnswers(curve, at);
  showThroughput(curve);
  showStep(curve);
  showPlan(plan);
}

function showAnswers(curve, at) {
  const X = curve.steps_per_second[at];
  const rate = curve.batch_size;
  const examples = settings.dataset_size === null ? null : settings.epochs * settings.dataset_size;
  const time = (x) => (examples === null ? null : examples / (x * rate));
  const price = settings.price_per_node_hour;
  const cost = (x) => (examples === null || price === null ? null : (time(x) / 3600) * price * curve.nodes[at]);
  const ends = (show, measure) =>
    measure(X) === null ? "" : `${show(measure(curve.upper[at]))} to ${show(measure(curve.lower[at]))}`;
  const tiles = [
    ["steps/s", readable(X), `${readable(curve.lower[at])} to ${readable(curve.upper[at])}`, "steps_per_second"],
    ["examples/s", readable(X * rate), `batch size ${readable(rate)}`, "examples_per_second"],
    ["speedup", readable(X / curve.single), `efficiency ${percent(X / (curve.workers[at] * curve.single))}`, "speedup"],
    ["bottleneck", curve.bottleneck || "none", Number.isFinite(curve.saturation_workers) ? `knee at ${readable(curve.saturation_workers)} workers` : "no knee", "bottleneck"],
    ["time to train", duration(time(X)), ends(duration, time), "time"],
    ["cost", readable(cost(X)), ends(readable, cost), "cost"],
  ];
  const boxes = tiles.filter(([, value]) => value !== "-").map(([name, value, more, id]) =>
    h("div", { class: "tile" }, h("h3", {}, name), h("output", { id: `answer-${id}`, class: "value" }, value), h("p", {}, more)),
  );
  const percentage = percent(curve.confidence);
  const words = `${settings.workers} worker(s): predictions, with intervals of ${percentage} below`;
  places.answers.replaceChildren(h("p", {}, words), h("div", { class: "tiles" }, ...boxes));
}

/** The curve that was predicted by another method than the page's, where the machines are those it is of. */
function reference() {
  const machines = ["parameter_servers", "bandwidth", "accelerator_speed", "batch_size"];
  const apart = network && data.curve.steps_per_second && machines.every((name) => settings[name] === start[name]);
  return apart ? data.curve : null;
}

function showThroughput(curve) {
  const other = reference();
  const last = Math.max(curve.workers.at(-1), curve.profiled_workers);
  const high = Math.max(...curve.upper, ...(other ? other.upper : []), ...curve.measured.map(([, x]) => x));
  const N = curve.workers;
  const bounded = curve.bound_upper.length && curve.bound_upper[0] !== null;
  const bound = { kind: "line", x: N, class: "bound" };
  const marks = [
    ...(curve.profiled_workers
      ? [{ kind: "shade", to: curve.profiled_workers + 0.5, label: `profiled, to ${curve.profiled_workers} worker(s)` }]
      : []),
    ...(bounded ? [{ ...bound, y: curve.bound_upper, label: "asymptotic bounds" }, { ...bound, y: curve.bound_lower }] : []),
    { kind: "band", x: N, low: curve.lower, high: curve.upper, class: "model", label: `${percent(curve.confidence)} interval` },
    { kind: "line", x: N, y: curve.steps_per_second, class: "model", dots: N.length <= 40, label: curve.method },
  ];
  if (other) {
    marks.push({ kind: "band", x: other.workers, low: other.lower, high: other.upper, class: "other" });
    marks.push({ kind: "line", x: other.workers, y: other.steps_per_second, class: "other", label: other.method });
  }
  marks.push({ kind: "vertical", x: settings.workers, class: "chosen", label: `${settings.workers} worker(s)` });
  if (curve.saturation_workers <= last) {
    const words = `knee ${Number(curve.saturation_workers.toPrecision(3))}`;
    marks.push({ kind: "vertical", x: curve.saturation_workers, class: "knee", text: words });
  }
  const [x, y] = [0, 1].map((i) => curve.measured.map((point) => point[i]));
  if (x.length) marks.push({ kind: "dots", x, y, class: "measured", label: "measured" });
  const title = `Throughput against workers: ${readable(curve.steps_per_second[0])} steps/s with ${N[0]}, ${readable(
    curve.steps_per_second.at(-1))} with ${N.at(-1)}; the numbers are in the table below`;
  const picture = h("div");
  const measured = Object.fromEntries(curve.measured);
  const simulated = other ? Object.fromEntries(other.workers.map((n, i) => [n, other.steps_per_second[i]])) : {};
  const rows = N.map((n, i) => ({
    workers: n,
    "steps/s": curve.steps_per_second[i],
    lower: curve.lower[i],
    upper: curve.upper[i],
    "examples/s": curve.steps_per_second[i] * curve.batch_size,
    speedup: curve.steps_per_second[i] / curve.single,
    efficiency: percent(curve.steps_per_second[i] / (n * curve.single)),
    ...(x.length ? { measured: measured[n] ?? null } : {}),
    ...(other ? { simulated: simulated[n] ?? null } : {}),
  }));
  places.throughput.replaceChildren(picture, table("Throughput by number of workers", rows));
  const axes = {
    x: { low: 0, high: last + Math.max(0.5, 0.02 * last), label: "workers", whole: true },
    y: { low: 0, high: 1.1 * high, label: "throughput (steps/s)" },
  };
  drawChart(picture, { title, ...axes, marks });
}

/** What a step spends its time on, from the axis up, as plot_step_time has it. */
function layers(curve) {
  const step = curve.workers.map((n, i) => n / curve.steps_per_second[i]);
  const nothing = step.map(() => 0);
  const found = [];
  let low = nothing;
  const add = (name, place, seconds, faint) => {
    const high = low.map((bottom, i) => bottom + seconds[i]);
    if (Math.max(...seconds) > 0.002 * Math.max(...step)) found.push({ name, place, seconds, low, high, faint });
    low = high;
  };
  if (!curve.stations.length || !curve.residence_time.length) add("step", "worker", step, false);
  else {
    add("worker", "worker", curve.think_time, false);
    for (const kind of new Set(curve.stations.map((name) => name.replace(/ \d+$/, "")))) {
      const columns = curve.stations.flatMap((name, k) => (name.replace(/ \d+$/, "") === kind ? [k] : []));
      const spent = step.map((_, i) => sum(columns.map((k) => curve.residence_time[i][k])));
      const busy = step.map((_, i) => sum(columns.map((k) => curve.utilization[i][k])) / curve.steps_per_second[i]);
      const service = curve.synchronous ? spent : spent.map((seconds, i) => Math.min(busy[i], seconds));
      add(kind, kind, service, false);
      add(`${kind}, waiting`, kind, spent.map((seconds, i) => (seconds - service[i] > 1e-9 * seconds ? seconds - service[i] : 0)), true);
    }
  }
  return { step, found };
}

function showStep(curve) {
  const { step, found } = layers(curve);
  const marks = found.map((one) => ({
    kind: "bars", x: curve.workers, low: one.low, high: one.high, label: one.name,
    color: data.look.places[one.place] || data.look.colors[0], class: one.faint ? "faint" : "",
  }));
  const rows = curve.workers.map((n, i) => ({
    workers: n,
    "step (s)": step[i],
    ...Object.fromEntries(found.map((one) => [`${one.name} (s)`, one.seconds[i]])),
  }));
  const picture = h("div");
  const last = curve.workers.at(-1);
  places.step.replaceChildren(picture, table("Seconds of a step by number of workers", rows));
  const title = "Where a step's time goes against workers; the numbers are in the table below";
  const axes = {
    x: { low: 0, high: last + 0.6, label: "workers", whole: true },
    y: { low: 0, high: 1.05 * Math.max(...step), label: "time of one step (s)" },
  };
  drawChart(picture, { title, ...axes, marks });
}

function showPlan(plan) {
  const interval = (low, high, show) => (low === null && high === null ? "" : ` (${show(low)} to ${show(high)})`);
  const known = (n) => (n === null ? "?" : String(n));
  const rows = plan.map((one) => ({
    goal: one.goal,
    workers: one.workers === null ? "none" : one.workers,
    "workers, interval": interval(one.workers_low, one.workers_high, known).replace(/[()]/g, "").trim(),
    time: duration(one.time) + interval(one.time_low, one.time_high, duration),
    cost: readable(one.cost) + interval(one.cost_low, one.cost_high, readable),
  }));
  const missing = settings.dataset_size === null
    ? "Times and costs need the number of examples per epoch: set it above. "
    : "";
  const words = `${missing}A question without a value is not asked; a price is of each node, servers included.`;
  places.plan.replaceChildren(h("p", {}, words), rows.length ? table("Choices of workers", rows) : h("p", {}, "Nothing is asked."));
}

/** One recorded step or round: each span is dark since it began, and light since it was asked for. */
function showTimeline(place) {
  const { what, seconds, lanes, places: colors, spans } = data.timeline;
  const marks = lanes.flatMap((name, lane) => {
    const own = spans.filter((span) => span[0] === lane);
    const titles = own.map(([, title, , from, to, bytes]) =>
      `${title}: ${readable(from)} to ${readable(to)} s${bytes ? `, ${readable(bytes)} bytes` : ""}`);
    const mark = { kind: "spans", y: own.map(() => lane), titles, color: data.look.places[colors[lane]] };
    const [asked, begun, ended] = [2, 3, 4].map((column) => own.map((span) => span[column]));
    const light = { ...mark, low: asked, high: ended, class: "faint", share: 0.7 };
    return [...(asked.some((at, i) => at < begun[i]) ? [light] : []), { ...mark, low: begun, high: ended, label: name }];
  });
  drawChart(place, {
    title: `Timeline of one recorded ${what} of ${readable(seconds)} s; what it consists of is in the table below`,
    x: { low: 0, high: 1.01 * Math.max(seconds, ...spans.map((span) => span[4])), label: "time since it began (s)" },
    y: { names: lanes },
    marks,
    height: 80 + 38 * lanes.length,
  });
}

function drawRecorded() {
  if (data.timeline) showTimeline(document.getElementById("timeline"));
}

function layOut() {
  const offered = network
    ? "This page recomputes the curve, its interval, the plan and the cost by mean-value analysis of the fitted closed " +
      "network, as Python does."
    : `Workers, epochs, deadline and price can be changed here. What other machines would do is not recomputed: ${data.obstacle}.`;
  const fields = h("fieldset", { class: "controls" }, h("legend", {}, "What if"), ...Object.values(controls));
  const again = h("button", { type: "button", click: () => { settings = { ...start }; refresh(); link(settings, start); } }, "As it was");
  fields.append(again);
  const parts = [
    h("header", {}, h("h1", {}, data.title), h("p", {}, data.caption), h("p", {}, offered)),
    fields,
    section("Answers", places.answers),
    section("Throughput", places.throughput),
    section("Where a step's time goes", places.step),
    section("The plan", places.plan),
  ];
  if (data.timeline) {
    const { what, note, lanes, spans } = data.timeline;
    const picture = h("div", { class: "figure", id: "timeline" });
    const rows = spans.map(([lane, name, asked, begun, ended, bytes]) =>
      ({ where: lanes[lane], name, "asked for (s)": asked, "began (s)": begun, "ended (s)": ended, bytes }));
    const numbers = folded("Table of what it consists of", table(`One recorded ${what}`, rows));
    parts.push(section(`One recorded ${what}`, h("p", {}, note), picture, numbers));
  }
  if (data.parameters.length) parts.push(section("Fitted parameters", table("What was fitted, and how far to trust it", data.parameters)));
  const said = data.about.map((one) => h("li", {}, one));
  if (reference()) {
    said.push(h("li", {}, `Dashed: ${data.curve.method}, for the machines as they were at first; it is not recomputed here.`));
  }
  parts.push(section("How it was predicted, and what that cannot know", h("ul", {}, ...said)));
  if (data.next) {
    const show = { expected_width: percent, narrower_by: percent };
    parts.push(section("What to measure next", h("p", {}, data.next.caption), table("Runs of a minute", data.next.rows, show)));
  }
  parts.push(h("footer", {}, `queuemodel ${data.version}. The address of this page carries its settings: copy it to share them.`));
  page.replaceChildren(...parts);
}

layOut();
restore();
drawRecorded();
window.addEventListener("hashchange", restore);
window.addEventListener("resize", () => {
  refresh();
  drawRecorded();
});

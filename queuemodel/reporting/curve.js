// The report of a throughput curve: settings, and what follows from them.

/** What the page says of settings: the curve, and the plan; the numbers of Python. */
function answer(settings) {
  const curve = network ? solveNetwork(network, settings) : { ...data.curve, saturation_workers: knee(data.curve) };
  return { curve, plan: planWorkers(curve, settings) };
}

const knee = (curve) => (curve.saturation_workers === null ? Infinity : curve.saturation_workers);

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
    [
      "bottleneck",
      curve.bottleneck || "none",
      Number.isFinite(curve.saturation_workers) ? `knee at ${readable(curve.saturation_workers)} workers` : "no knee",
      "bottleneck",
    ],
    ["time to train", duration(time(X)), ends(duration, time), "time"],
    ["cost", readable(cost(X)), ends(readable, cost), "cost"],
  ];
  const boxes = tiles
    .filter(([, value]) => value !== "-")
    .map(([name, value, more, id]) =>
      h(
        "div",
        { class: "tile" },
        h("h3", {}, name),
        h("output", { id: `answer-${id}`, class: "value" }, value),
        h("p", {}, more),
      ),
    );
  const percentage = percent(curve.confidence);
  const words = `${settings.workers} worker(s): predictions, with intervals of ${percentage} below`;
  places.answers.replaceChildren(h("p", {}, words), h("div", { class: "tiles" }, ...boxes));
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
  const missing =
    settings.dataset_size === null ? "Times and costs need the number of examples per epoch: set it above. " : "";
  const words = `${missing}A question without a value is not asked; a price is of each node, servers included.`;
  places.plan.replaceChildren(
    h("p", {}, words),
    rows.length ? table("Choices of workers", rows) : h("p", {}, "Nothing is asked."),
  );
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
  const again = h(
    "button",
    {
      type: "button",
      click: () => {
        settings = { ...start };
        refresh();
        link(settings, start);
      },
    },
    "As it was",
  );
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
    const rows = spans.map(([lane, name, asked, begun, ended, bytes]) => ({
      where: lanes[lane],
      name,
      "asked for (s)": asked,
      "began (s)": begun,
      "ended (s)": ended,
      bytes,
    }));
    const numbers = folded("Table of what it consists of", table(`One recorded ${what}`, rows));
    parts.push(section(`One recorded ${what}`, h("p", {}, note), picture, numbers));
  }
  if (data.parameters.length)
    parts.push(section("Fitted parameters", table("What was fitted, and how far to trust it", data.parameters)));
  const said = data.about.map((one) => h("li", {}, one));
  if (reference()) {
    said.push(
      h("li", {}, `Dashed: ${data.curve.method}, for the machines as they were at first; it is not recomputed here.`),
    );
  }
  parts.push(section("How it was predicted, and what that cannot know", h("ul", {}, ...said)));
  page.replaceChildren(...parts, footer());
}

layOut();
restore();
drawRecorded();
window.addEventListener("hashchange", restore);
window.addEventListener("resize", () => {
  refresh();
  drawRecorded();
});

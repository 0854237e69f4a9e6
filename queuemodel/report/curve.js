// The report of a throughput curve: what follows from its settings.

/** What the page says of settings: the curve, and the plan; the numbers of Python. */
function answer(settings) {
  const knee = data.curve.saturation_workers ?? Infinity;
  const curve = network ? solveNetwork(network, settings) : { ...data.curve, saturation_workers: knee };
  return { curve, plan: planWorkers(curve, settings) };
}

const places = placesFor("recommendation", "answers", "throughput", "step", "plan", "timeline");
for (const name of ["recommendation", "answers"]) places[name].setAttribute("aria-live", "polite");
let solved = { key: "", told: null };
let first = null; // the curve that the page begins with

function refresh() {
  if (network && !network.servers[settings.parameter_servers]) settings.parameter_servers = start.parameter_servers;
  const machines = JSON.stringify({ ...settings, workers: 0 });
  if (solved.key !== machines) solved = { key: machines, told: answer(settings) };
  const { curve, plan } = solved.told;
  first ??= answer(start).curve;
  const changed = first.workers.some((n, i) => first.steps_per_second[i] !== curve.steps_per_second[curve.workers.indexOf(n)]);
  const nearest = (best, n) => (Math.abs(n - settings.workers) < Math.abs(best - settings.workers) ? n : best);
  settings.workers = curve.workers.reduce(nearest);
  controls.workers.limit(curve.workers.at(-1));
  showControls();
  table.marked = settings.workers;
  showRecommendation(curve, plan);
  showAnswers(curve, curve.workers.indexOf(settings.workers), changed ? first : null);
  showThroughput(curve, changed ? first : curve);
  showStep(curve);
  showPlan(plan);
  if (data.timeline) showTimeline(places.timeline);
}

/** The first of these goals that has an answer, and what the fastest number of workers would add. */
function showRecommendation(curve, plan) {
  const wanted = ["cheapest within", "cheapest", "smallest within", "efficiency"];
  const best = wanted.map((goal) => plan.find((one) => one.goal.startsWith(goal) && one.workers)).find(Boolean);
  if (!best) {
    places.recommendation.replaceChildren(h("p", {}, "No number of workers on the curve meets a goal."));
    return;
  }
  const X = curve.steps_per_second;
  const [at, quick] = [curve.workers.indexOf(best.workers), X.indexOf(Math.max(...X))];
  const short = (value) => Number(value.toPrecision(3));
  const rate = `process ${short(X[at] * curve.batch_size)} examples/s`;
  const does = best.time === null ? rate : `finish in ${duration(best.time, short)}`;
  const costs = best.cost === null ? "" : ` and cost ${short(best.cost)}`;
  const verb = best.workers === 1 ? does.replace("process", "processes").replace("finish", "finishes") : does;
  const gain = X[quick] / X[at] - 1;
  const dearer = (curve.nodes[quick] / curve.nodes[at]) * (X[at] / X[quick]) - 1;
  const more =
    gain > 0.005
      ? ` ${counted(curve.workers[quick], "worker")}, the fastest on the curve, are ${Math.round(100 * gain)} % faster` +
        (best.cost === null ? "." : ` and cost ${Math.round(100 * dearer)} % more.`)
      : " No more workers are faster.";
  const sentence = `${counted(best.workers, "worker")} ${verb}${best.workers === 1 ? costs.replace("cost", "costs") : costs} (${best.goal}).`;
  places.recommendation.replaceChildren(h("p", { class: "lead" }, sentence + more));
}

function showAnswers(curve, at, before) {
  const X = curve.steps_per_second[at];
  const rate = curve.batch_size;
  const examples = settings.dataset_size === null ? null : settings.epochs * settings.dataset_size;
  const time = (x) => (examples === null ? null : examples / (x * rate));
  const price = settings.price_per_node_hour;
  const cost = (x) => (examples === null || price === null ? null : (time(x) / 3600) * price * curve.nodes[at]);
  const ends = (show, measure) =>
    measure(X) === null ? "" : `${show(measure(curve.upper[at]))} to ${show(measure(curve.lower[at]))}`;
  const knee = curve.saturation_workers;
  const was = before ? before.steps_per_second[before.workers.indexOf(settings.workers)] : undefined;
  const difference = was ? `; ×${readable(Number((X / was).toPrecision(3)))} of before` : "";
  const tiles = [
    ["steps_per_second", "steps/s", readable(X), `${readable(curve.lower[at])} to ${readable(curve.upper[at])}${difference}`],
    ["examples_per_second", "examples/s", readable(X * rate), `batch size ${readable(rate)}`],
    ["speedup", "speedup", readable(X / curve.single), `efficiency ${percent(X / (curve.workers[at] * curve.single))}`],
    ["bottleneck", "bottleneck", curve.bottleneck || "none",
      Number.isFinite(knee) ? `saturation at ${readable(knee)} workers` : "no saturation"],
    ["time", "time to train", duration(time(X)), ends(duration, time)],
    ["cost", "cost", readable(cost(X)), ends(readable, cost)],
  ];
  const boxes = tiles
    .filter(([, , value]) => value !== "-")
    .map(([id, name, value, more]) => {
      const shown = h("output", { id: `answer-${id}`, class: "value" }, value);
      return h("div", { class: "tile" }, h("h3", {}, name), shown, h("p", {}, more));
    });
  const words = `${counted(settings.workers, "worker")}: predictions, with intervals of ${percent(curve.confidence)} below`;
  places.answers.replaceChildren(h("p", {}, words), h("div", { class: "tiles" }, ...boxes));
}

function showPlan(plan) {
  const interval = (low, high, show) => (low === null && high === null ? "" : `${show(low)} to ${show(high)}`);
  const within = (value, low, high, show) => {
    const ends = interval(low, high, show);
    return show(value) + (ends ? ` (${ends})` : "");
  };
  const known = (n) => (n === null ? "?" : String(n));
  const rows = plan.map((one) => ({
    goal: one.goal,
    workers: one.workers ?? "none",
    "workers, interval": interval(one.workers_low, one.workers_high, known),
    time: within(one.time, one.time_low, one.time_high, duration),
    cost: within(one.cost, one.cost_low, one.cost_high, readable),
  }));
  const missing =
    settings.dataset_size === null ? "Times and costs need the number of examples per epoch: set it above. " : "";
  const words = `${missing}A question without a value is not asked; a price is of each node, servers included.`;
  const shown = rows.length ? table("Choices of workers", rows) : h("p", {}, "Nothing is asked.");
  places.plan.replaceChildren(h("p", {}, words), shown);
}

/** One recorded step or round: its picture, which `refresh` draws, and its table. */
function recorded() {
  const { what, note, lanes, spans } = data.timeline;
  const columns = ["name", "asked for (s)", "began (s)", "ended (s)", "bytes"];
  const rows = spans.map(([lane, ...cells]) =>
    Object.fromEntries([["where", lanes[lane]], ...columns.map((name, i) => [name, cells[i]])]),
  );
  const numbers = folded("Table of what it consists of", table(`One recorded ${what}`, rows));
  return section(`One recorded ${what}`, h("p", {}, note), places.timeline, numbers);
}

function layOut() {
  const offered = network
    ? "This page recomputes the curve, its interval, the plan and the cost by mean-value analysis of the fitted closed " +
      "network, as Python does."
    : `Workers, epochs, deadline and price can be changed here. What other machines would do is not recomputed: ${data.obstacle}.`;
  const again = h("button", { type: "button", click: () => set(start) }, "As it was");
  const simulated = network && data.curve.steps_per_second;
  const dashed = `Dashed: ${data.curve.method}, for the machines as they were at first; it is not recomputed here.`;
  const parts = [
    header(places.recommendation, data.caption, offered),
    section("Answers", places.answers),
    h("fieldset", { class: "controls" }, h("legend", {}, "What if"), ...Object.values(controls), again),
    section("Throughput", places.throughput),
    section("Where a step's time goes", places.step),
    section("The plan", places.plan),
  ];
  if (data.timeline) parts.push(recorded());
  if (data.parameters.length)
    parts.push(section("Fitted parameters", table("What was fitted, and how far to trust it", data.parameters)));
  parts.push(section("How it was predicted, and what that cannot know", list([...data.about, simulated && dashed])));
  return parts;
}

begin();

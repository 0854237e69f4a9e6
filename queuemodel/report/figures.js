// The pictures of a curve's page, each with its table.

/** Steps per second in 1 of the axis of rates; of speedups as predicted, whatever the machines. */
const rateOf = (curve) => (curve.unit && curve.in_rounds ? curve : first).rate[0];

/** Steps of so many workers in 1 of what tables count, iterations or steps: linear in the workers. */
function stepsIn({ workers: N, in_one: steps }, workers) {
  const slope = N.length > 1 ? (steps.at(-1) - steps[0]) / (N.at(-1) - N[0]) : steps[0] / N[0];
  return steps[0] + slope * (workers - N[0]);
}

/** Numbers of workers in those of the axis of sizes. */
const sizesOf = (curve, workers) => workers.map((n) => n / curve.size[1]);

/** The axis of sizes, from 0 to the largest of these. */
function sizeAxis(curve, workers) {
  const last = Math.max(...sizesOf(curve, workers));
  return { low: 0, high: last + Math.max(0.5, 0.02 * last), label: curve.size[0], whole: true };
}

/** That of bars: logarithmic where they are far from evenly spaced. */
function barAxis(curve) {
  const x = sizesOf(curve, curve.workers);
  const gaps = x.slice(1).map((value, i) => value - x[i]);
  const log = Math.max(...gaps) > 4 * Math.min(...gaps);
  return { ...sizeAxis(curve, curve.workers), ...(log ? { low: x[0] / 1.3, high: x.at(-1) * 1.3, log, at: x } : {}) };
}

/** Columns of machines, as those of the command line. */
function machinesAt(curve, i) {
  const workers = curve.workers[i];
  return curve.workers_per_node > 1 ? { nodes: curve.nodes[i], GPUs: workers } : { workers };
}

let highest = 0; // of the axis, which stays while a slider moves

function showThroughput(curve, at, before, scenario, name, typed) {
  const { workers: N, steps_per_second: X, bound_upper, saturation_workers: knee } = curve;
  const measured = [...curve.measured, ...typed];
  const all = [...N, curve.profiled_workers, ...measured.map(([n]) => n)];
  const line = (one, y) => ({ x: sizesOf(one, one.workers), y: y.map((x) => x / rateOf(one)) });
  const [low, high] = [curve.lower, curve.upper].map((end) => line(curve, end).y);
  const [x, y] = [sizesOf(curve, measured.map(([n]) => n)), measured.map(([, rate]) => rate / rateOf(curve))];
  const was = before ? line(before, before.steps_per_second) : null;
  if (!control.dragged) highest = 0;
  highest = Math.max(highest, 1.1 * Math.max(...high, ...(was ? was.y : []), ...y));
  const marks = [];
  if (curve.profiled_workers) marks.push({ kind: "shade", to: curve.profiled_workers / curve.size[1] + 0.5, label: "profiled" });
  if (bound_upper.length && bound_upper[0] !== null) {
    marks.push({ kind: "line", ...line(curve, bound_upper), class: "bound", label: curve.parameter_servers ? "asymptotes" : "full overlap" });
  }
  if (was) marks.push({ kind: "line", ...was, class: "other", label: name });
  const predicted = line(curve, X);
  marks.push({ kind: "band", x: predicted.x, low, high, class: "model", label: `${percent(data.confidence)} interval` });
  marks.push({ kind: "line", ...predicted, class: "model", label: "predicted", dots: N.length <= 40 });
  marks.push({ kind: "vertical", x: predicted.x[at], class: "chosen", label: curve.names[at] });
  if (knee !== null && knee <= Math.max(...all)) {
    marks.push({ kind: "vertical", x: knee, class: "knee", text: `saturation point N* ${digits(knee)}` });
  }
  if (x.length) marks.push({ kind: "dots", x, y, class: "measured", label: "measured" });
  const rate = curve.rate[1].replace(/.*\((.*)\)/, "$1");
  const chart = {
    title: `Throughput, ${scenario}; the numbers are in the table below`,
    x: sizeAxis(curve, all),
    y: { low: 0, high: highest, label: curve.rate[1] },
    marks,
    hover: N.map((n, i) => `${curve.names[i]}: ${digits(predicted.y[i])} ${rate} (${digits(low[i])} to ${digits(high[i])})`
      + (was ? `; ${name} ${digits(was.y[i])}` : "")),
  };
  const rates = Object.fromEntries(measured.map(([n, x]) => [n, digits(x / stepsIn(curve, n), 4)]));
  const rows = N.map((n, i) => ({
    ...machinesAt(curve, i),
    [`${curve.counts}/s`]: X[i] / stepsIn(curve, n),
    lower: curve.lower[i] / stepsIn(curve, n),
    upper: curve.upper[i] / stepsIn(curve, n),
    ...Object.fromEntries(Object.entries(curve.work).map(([unit, each]) => [`${unit}/s`, X[i] * each])),
    [`speedup${overBase(curve)}`]: X[i] / curve.single / curve.base_workers,
    efficiency: percent(X[i] / (n * curve.single)),
    ...(x.length ? { measured: rates[n] ?? null } : {}),
  }));
  figure(places.throughput, chart, `Throughput, ${scenario}`, rows, { marked: at });
}

/** Places where a step's time goes, from the axis up, the worker's own first: seconds, and where the bar begins. */
function layers(curve) {
  const step = curve.workers.map((n, i) => n / curve.steps_per_second[i]);
  const own = step.map((_, i) => 1 - curve.shares.reduce((total, share) => total + share[i], 0));
  let low = step.map(() => 0);
  const found = ["worker", ...curve.places].map((name, k) => {
    const share = k ? curve.shares[k - 1] : own;
    const seconds = step.map((time, i) => Math.max(share[i], 0) * time);
    const layer = { name, seconds, low, high: low.map((bottom, i) => bottom + seconds[i]) };
    low = layer.high;
    return layer;
  });
  return { step, found: found.filter(({ seconds }) => Math.max(...seconds) > 0.002 * Math.max(...step)) };
}

function showStep(curve, at) {
  const { step, found } = layers(curve);
  const { places: colors, colors: others } = data.look;
  const called = (name) => (name === "worker" && !curve.parameter_servers ? "computation" : name);
  const chart = {
    title: "Where a step's time goes; the numbers are in the table below",
    x: barAxis(curve),
    y: { low: 0, high: 1.05 * Math.max(...step), label: "time of one step (s)" },
    marks: found.map(({ name, low, high }, k) => {
      const color = colors[name] || others[k % others.length];
      return { kind: "bars", x: sizesOf(curve, curve.workers), low, high, label: called(name), color };
    }),
    hover: curve.workers.map((_, i) =>
      `${curve.names[i]}: ${found.map(({ name, seconds }) => `${called(name)} ${digits(seconds[i])} s`).join(", ")}`),
  };
  const rows = curve.workers.map((_, i) => ({
    ...machinesAt(curve, i),
    "step (s)": step[i],
    ...Object.fromEntries(found.map((one) => [`${called(one.name)} (s)`, one.seconds[i]])),
  }));
  figure(places.step, chart, "Seconds of a step; waiting for a place counts as time there", rows, { marked: at });
}

/** One recorded step or round: each span is dark since it began, and light since its request. */
function showTimeline(place) {
  const { what, seconds, lanes, places: colors, spans } = data.timeline;
  const marks = lanes.flatMap((label, lane) => {
    const own = spans.filter((span) => span[0] === lane);
    const titles = own.map(([, title, , from, to, bytes]) => {
      const sent = bytes ? `, ${readable(bytes)} bytes` : "";
      return `${title}: ${readable(from)} to ${readable(to)} s${sent}`;
    });
    const [asked, begun, ended] = [2, 3, 4].map((column) => own.map((span) => span[column]));
    const y = own.map(() => lane);
    const mark = { kind: "spans", y, high: ended, titles, color: data.look.places[colors[lane]] };
    const waited = asked.some((at, i) => at < begun[i]);
    const dark = { ...mark, low: begun };
    return waited ? [{ ...mark, low: asked, class: "faint", share: 0.7 }, dark] : [dark];
  });
  drawChart(place, {
    title: `Timeline of one recorded ${what} of ${readable(seconds)} s; what it consists of is in the table below`,
    x: { low: 0, high: 1.01 * Math.max(seconds, ...spans.map((span) => span[4])), label: "time since it began (s)" },
    y: { names: lanes },
    marks,
    height: 80 + 38 * lanes.length,
  });
}

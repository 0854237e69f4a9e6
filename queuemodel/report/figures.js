// The pictures of a curve's page, each with its table.

/** A curve as a band and a line. */
function curveMarks({ workers: x, steps_per_second: y, lower: low, upper: high }) {
  return [
    { kind: "band", x, low, high, class: "model", label: `${percent(data.confidence)} interval` },
    { kind: "line", x, y, class: "model", label: "predicted", dots: x.length <= 40 },
  ];
}

let highest = 0; // of the axis, which stays while a slider moves

function showThroughput(curve, before, scenario, name) {
  const { workers: N, steps_per_second: X, bound_upper, saturation_workers: knee } = curve;
  const last = Math.max(N.at(-1), curve.profiled_workers);
  const [x, y] = [0, 1].map((i) => curve.measured.map((point) => point[i]));
  if (!control.dragged) highest = 0;
  highest = Math.max(highest, 1.1 * Math.max(...curve.upper, ...(before ? before.upper : []), ...y));
  const marks = [];
  if (curve.profiled_workers) marks.push({ kind: "shade", to: curve.profiled_workers + 0.5, label: "profiled" });
  if (bound_upper.length && bound_upper[0] !== null) {
    marks.push({ kind: "line", x: N, y: bound_upper, class: "bound", label: "upper bound" });
  }
  if (before) {
    marks.push({ kind: "line", x: before.workers, y: before.steps_per_second, class: "other", label: name });
  }
  marks.push(...curveMarks(curve));
  marks.push({ kind: "vertical", x: settings.workers, class: "chosen", label: counted(settings.workers, "worker") });
  if (knee !== null && knee <= last) {
    marks.push({ kind: "vertical", x: knee, class: "knee", text: `saturation point N* ${three(knee)}` });
  }
  if (x.length) marks.push({ kind: "dots", x, y, class: "measured", label: "measured" });
  const was = (i) => (before ? `; ${name} ${three(before.steps_per_second[i])}` : "");
  const ends = `${readable(X[0])} steps/s with ${N[0]}, ${readable(X.at(-1))} with ${N.at(-1)}`;
  const chart = {
    title: `Throughput against workers, ${scenario}: ${ends}; the numbers are in the table below`,
    x: { low: 0, high: last + Math.max(0.5, 0.02 * last), label: "workers", whole: true },
    y: { low: 0, high: highest, label: "throughput (steps/s)" },
    marks,
    hover: N.map((n, i) =>
      `${counted(n, "worker")}: ${three(X[i])} steps/s (${three(curve.lower[i])} to ${three(curve.upper[i])})${was(i)}`),
  };
  const measured = Object.fromEntries(curve.measured);
  const rows = N.map((n, i) => ({
    workers: n,
    "steps/s": X[i],
    lower: curve.lower[i],
    upper: curve.upper[i],
    ...(curve.unit ? { [`${curve.unit}/s`]: X[i] * curve.batch_size } : {}),
    [`speedup${overBase(curve)}`]: X[i] / curve.single / curve.base_workers,
    efficiency: percent(X[i] / (n * curve.single)),
    ...(x.length ? { measured: measured[n] ?? null } : {}),
  }));
  figure(places.throughput, chart, `Throughput by number of workers, ${scenario}`, rows);
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

function showStep(curve) {
  const { step, found } = layers(curve);
  const { places: colors, colors: others } = data.look;
  const chart = {
    title: "Where a step's time goes against workers; the numbers are in the table below",
    x: { low: 0, high: curve.workers.at(-1) + 0.6, label: "workers", whole: true },
    y: { low: 0, high: 1.05 * Math.max(...step), label: "time of one step (s)" },
    marks: found.map(({ name, low, high }) => {
      return { kind: "bars", x: curve.workers, low, high, label: name, color: colors[name] || others[0] };
    }),
    hover: curve.workers.map((n, i) =>
      `${counted(n, "worker")}: ${found.map(({ name, seconds }) => `${name} ${three(seconds[i])} s`).join(", ")}`),
  };
  const rows = curve.workers.map((n, i) => ({
    workers: n,
    "step (s)": step[i],
    ...Object.fromEntries(found.map((one) => [`${one.name} (s)`, one.seconds[i]])),
  }));
  figure(places.step, chart, "Seconds of a step by number of workers; waiting for a place counts as time there", rows);
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
    const dark = { ...mark, low: begun, label };
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

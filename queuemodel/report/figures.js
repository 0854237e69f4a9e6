// The pictures of a curve's page, each with its table.

/** The curve that was predicted by another method than the page's, where the machines are those it is of. */
function reference() {
  const machines = ["parameter_servers", "bandwidth", "accelerator_speed", "batch_size"];
  const apart = network && data.curve.steps_per_second && machines.every((name) => settings[name] === start[name]);
  return apart ? data.curve : null;
}

/** A curve as a band and a line. */
function curveMarks({ workers: x, steps_per_second: y, lower: low, upper: high }, look, label, name) {
  return [
    { kind: "band", x, low, high, class: look, label },
    { kind: "line", x, y, class: look, label: name, dots: look === "model" && x.length <= 40 },
    { kind: "hits", x, y, titles: x.map((n, i) => `${counted(n, "worker")}: ${readable(y[i])} steps/s`) },
  ];
}

function showThroughput(curve, before) {
  const { workers: N, steps_per_second: X, bound_upper, bound_lower, saturation_workers: knee } = curve;
  const other = reference();
  const last = Math.max(N.at(-1), curve.profiled_workers);
  const [x, y] = [0, 1].map((i) => curve.measured.map((point) => point[i]));
  const high = Math.max(...curve.upper, ...before.upper, ...(other ? other.upper : []), ...y);
  const profiled = `profiled, to ${counted(curve.profiled_workers, "worker")}`;
  const bound = { kind: "line", x: N, class: "bound" };
  const marks = [];
  if (curve.profiled_workers) marks.push({ kind: "shade", to: curve.profiled_workers + 0.5, label: profiled });
  if (bound_upper.length && bound_upper[0] !== null) {
    marks.push({ ...bound, y: bound_upper, label: "bounds" }, { ...bound, y: bound_lower });
  }
  if (before !== curve) {
    marks.push({ kind: "line", x: before.workers, y: before.steps_per_second, class: "other", label: "before" });
  }
  marks.push(...curveMarks(curve, "model", `${percent(curve.confidence)} interval`, "predicted"));
  if (other) marks.push(...curveMarks(other, "other", "", "simulated"));
  marks.push({ kind: "vertical", x: settings.workers, class: "chosen", label: counted(settings.workers, "worker") });
  if (knee <= last) {
    marks.push({ kind: "vertical", x: knee, class: "knee", text: `saturation ${Number(knee.toPrecision(3))}` });
  }
  if (x.length) marks.push({ kind: "dots", x, y, class: "measured", label: "measured" });
  const ends = `${readable(X[0])} steps/s with ${N[0]}, ${readable(X.at(-1))} with ${N.at(-1)}`;
  const chart = {
    title: `Throughput against workers: ${ends}; the numbers are in the table below`,
    x: { low: 0, high: last + Math.max(0.5, 0.02 * last), label: "workers", whole: true },
    y: { low: 0, high: 1.1 * high, label: "throughput (steps/s)" },
    marks,
  };
  const measured = Object.fromEntries(curve.measured);
  const rows = N.map((n, i) => ({
    workers: n,
    "steps/s": X[i],
    lower: curve.lower[i],
    upper: curve.upper[i],
    "examples/s": X[i] * curve.batch_size,
    speedup: X[i] / curve.single,
    efficiency: percent(X[i] / (n * curve.single)),
    ...(x.length ? { measured: measured[n] ?? null } : {}),
    ...(other ? { simulated: other.steps_per_second[other.workers.indexOf(n)] ?? null } : {}),
  }));
  figure(places.throughput, chart, "Throughput by number of workers", rows);
}

/** What a step spends its time on, from the axis up, as plot_step_time has it. */
function layers(curve) {
  const step = curve.workers.map((n, i) => n / curve.steps_per_second[i]);
  const found = [];
  let low = step.map(() => 0);
  const add = (name, place, seconds, look = "") => {
    const high = low.map((bottom, i) => bottom + seconds[i]);
    if (Math.max(...seconds) > 0.002 * Math.max(...step)) found.push({ name, place, seconds, low, high, look });
    low = high;
  };
  if (!curve.stations.length || !curve.residence_time.length) add("step", "worker", step);
  else {
    const kinds = curve.stations.map((name) => name.replace(/ \d+$/, ""));
    add("worker", "worker", curve.think_time);
    for (const kind of new Set(kinds)) {
      const total = (row) => sum(row.filter((_, k) => kinds[k] === kind));
      const spent = curve.residence_time.map(total);
      const busy = curve.utilization.map((row, i) => total(row) / curve.steps_per_second[i]);
      const service = curve.synchronous ? spent : spent.map((seconds, i) => Math.min(busy[i], seconds));
      const waited = spent.map((seconds, i) => (seconds - service[i] > 1e-9 * seconds ? seconds - service[i] : 0));
      add(kind, kind, service);
      add(`${kind}, waiting`, kind, waited, "faint");
    }
  }
  return { step, found };
}

function showStep(curve) {
  const { step, found } = layers(curve);
  const { places: colors, colors: others } = data.look;
  const chart = {
    title: "Where a step's time goes against workers; the numbers are in the table below",
    x: { low: 0, high: curve.workers.at(-1) + 0.6, label: "workers", whole: true },
    y: { low: 0, high: 1.05 * Math.max(...step), label: "time of one step (s)" },
    marks: found.map(({ name, place, low, high, look }) => {
      const color = colors[place] || others[0];
      return { kind: "bars", x: curve.workers, low, high, label: name, color, class: look };
    }),
  };
  const rows = curve.workers.map((n, i) => ({
    workers: n,
    "step (s)": step[i],
    ...Object.fromEntries(found.map((one) => [`${one.name} (s)`, one.seconds[i]])),
  }));
  figure(places.step, chart, "Seconds of a step by number of workers", rows);
}

/** One recorded step or round: each span is dark since it began, and light since it was asked for. */
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

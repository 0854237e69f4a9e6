// The pictures of a curve's page, each with its table.

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
    ...(bounded
      ? [
          { ...bound, y: curve.bound_upper, label: "asymptotic bounds" },
          { ...bound, y: curve.bound_lower },
        ]
      : []),
    {
      kind: "band",
      x: N,
      low: curve.lower,
      high: curve.upper,
      class: "model",
      label: `${percent(curve.confidence)} interval`,
    },
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
    curve.steps_per_second.at(-1),
  )} with ${N.at(-1)}; the numbers are in the table below`;
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
      add(
        `${kind}, waiting`,
        kind,
        spent.map((seconds, i) => (seconds - service[i] > 1e-9 * seconds ? seconds - service[i] : 0)),
        true,
      );
    }
  }
  return { step, found };
}

function showStep(curve) {
  const { step, found } = layers(curve);
  const marks = found.map((one) => ({
    kind: "bars",
    x: curve.workers,
    low: one.low,
    high: one.high,
    label: one.name,
    color: data.look.places[one.place] || data.look.colors[0],
    class: one.faint ? "faint" : "",
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

/** One recorded step or round: each span is dark since it began, and light since it was asked for. */
function showTimeline(place) {
  const { what, seconds, lanes, places: colors, spans } = data.timeline;
  const marks = lanes.flatMap((name, lane) => {
    const own = spans.filter((span) => span[0] === lane);
    const titles = own.map(
      ([, title, , from, to, bytes]) =>
        `${title}: ${readable(from)} to ${readable(to)} s${bytes ? `, ${readable(bytes)} bytes` : ""}`,
    );
    const mark = { kind: "spans", y: own.map(() => lane), titles, color: data.look.places[colors[lane]] };
    const [asked, begun, ended] = [2, 3, 4].map((column) => own.map((span) => span[column]));
    const light = { ...mark, low: asked, high: ended, class: "faint", share: 0.7 };
    return [
      ...(asked.some((at, i) => at < begun[i]) ? [light] : []),
      { ...mark, low: begun, high: ended, label: name },
    ];
  });
  drawChart(place, {
    title: `Timeline of one recorded ${what} of ${readable(seconds)} s; what it consists of is in the table below`,
    x: { low: 0, high: 1.01 * Math.max(seconds, ...spans.map((span) => span[4])), label: "time since it began (s)" },
    y: { names: lanes },
    marks,
    height: 80 + 38 * lanes.length,
  });
}

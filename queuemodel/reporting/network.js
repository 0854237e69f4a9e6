// The closed network of asynchronous training, as queuemodel.training solves it: the same numbers to 1e-9.
// `recipe` is what TrainingModel.recipe gives; times are in seconds, bandwidths in bytes per second.

const sum = (values) => values.reduce((total, value) => total + value, 0);

/** Demands of one step (fetch, push, update, worker) on the machines of `settings` (Changes.demands). */
function demandsOn(recipe, settings, { fetch, push, update, worker }) {
  if (settings.bandwidth !== null && settings.bandwidth !== recipe.bandwidth) {
    const carried = [fetch, push].map((seconds, way) => {
      const explained = recipe.link_seconds[way]; // by the profiled link; null: all of it
      const host = explained === null ? 0 : Math.max(seconds - explained, 0);
      return host + recipe.transferred[way] / (recipe.link_efficiency * settings.bandwidth);
    });
    const before = fetch + push;
    const longer = before > 0 ? (carried[0] + carried[1]) / before : 1;
    const hidden = Math.max(recipe.compute - worker, 0);
    worker = Math.max(worker + hidden * (1 - longer), 0);
    [fetch, push] = carried;
  }
  const computation = settings.batch_size / recipe.batch_size / settings.accelerator_speed;
  worker = Math.max(worker + recipe.compute * (computation - 1), 0);
  return { fetch, push, update, worker };
}

/** Seconds (P rows of F) at each server's stations. */
function stationDemands(recipe, shards, demands) {
  const phases = recipe.phases.map((names) => sum(names.map((name) => demands[name])));
  return shards.map((share) => phases.map((seconds) => seconds * share));
}

/** Mean time of a phase that ends with its slowest server (in_parallel); D holds one phase, the largest first. */
function inParallel(D, Q, others) {
  const p = Math.min(Q / Math.max(others, 1), 1 - 1e-9);
  const uncertain = Math.min(others, D.length - 1);
  let exactly = (1 - p) ** others;
  let atMost = exactly;
  let time = D[0] * (1 + Q) + sum(D.slice(uncertain + 1));
  for (let k = 0; k < uncertain; k += 1) {
    time += atMost * D[k + 1];
    exactly *= (p / (1 - p)) * ((others - k) / (k + 1));
    atMost += exactly;
  }
  return time;
}

/** Throughput (n,) and time of each phase (n, F) of 1 to `most` workers (ParallelServers): mean-value analysis. */
function meanValueAnalysis({ settled, handover }, D, Z, most) {
  const phases = D[0].map((_, f) => D.map((row) => row[f]).sort((a, b) => b - a));
  const busiest = phases.map((row) => row[0]);
  const met = phases.map((row) => (row.length > 1 ? row[0] - row[1] : row[0]));
  const X = [];
  const spent = [];
  let Q = busiest.map(() => 0);
  let U = Q;
  let best = 0;
  for (let n = 1; n <= most; n += 1) {
    const slower = Q.map((queue) => 1 + handover * Math.min(queue, 1));
    const phase = phases.map((row, f) => {
      const spared = (settled * met[f] * U[f]) / (2 * Math.max(n - 1, 1));
      return slower[f] * (inParallel(row, Q[f], n - 1) - spared);
    });
    const capacity = 1 / Math.max(...busiest.map((seconds, f) => seconds * slower[f]), 1e-300);
    best = Math.max(best, Math.min(n / (Z + sum(phase)), capacity));
    Q = phase.map((seconds) => best * seconds);
    U = busiest.map((seconds) => best * seconds);
    X.push(best);
    const scale = (n / best - Z) / Math.max(sum(phase), 1e-300); // Little's law
    spent.push(phase.map((seconds) => seconds * scale));
  }
  return { X, spent };
}

/** Quantile of increasing values, with straight lines between them. */
function quantile(values, share) {
  const place = share * (values.length - 1);
  const below = Math.floor(place);
  const above = Math.min(below + 1, values.length - 1);
  return values[below] + (values[above] - values[below]) * (place - below);
}

/** Throughput (n, draws) of the fit's draws: its uncertainty. */
function drawnThroughputs(recipe, settings, shards, most) {
  const drawn = Array.from({ length: most }, () => []);
  for (let i = 0; i < recipe.draws.worker.length; i += 1) {
    const seen = Object.fromEntries(Object.entries(recipe.draws).map(([name, values]) => [name, values[i]]));
    const demands = demandsOn(recipe, settings, seen);
    const { X } = meanValueAnalysis(recipe, stationDemands(recipe, shards, demands), demands.worker, most);
    X.forEach((x, n) => drawn[n].push(x));
  }
  return drawn.map((row) => row.sort((a, b) => a - b));
}

/** The curve of 1 to `settings.most_workers` workers (TrainingModel.what_if and .throughput). */
function solveNetwork(recipe, settings) {
  const most = settings.most_workers;
  const servers = recipe.servers[settings.parameter_servers];
  const changed =
    (settings.bandwidth !== null && settings.bandwidth !== recipe.bandwidth) ||
    settings.batch_size !== recipe.batch_size ||
    settings.accelerator_speed !== 1;
  const demands = demandsOn(recipe, settings, recipe.demands);
  const D = stationDemands(recipe, servers.shards, demands);
  const Z = demands.worker;
  const { X, spent } = meanValueAnalysis(recipe, D, Z, most);
  const drawn = drawnThroughputs(recipe, settings, servers.shards, most);
  const tail = (1 - recipe.confidence) / 2;
  const own = (n) => recipe.reach * (changed || !servers.error.length ? recipe.elsewhere : servers.error[n]);
  const beside = (n, share) => Math.hypot(Math.log(quantile(drawn[n], share) / X[n]), own(n));
  const workers = X.map((_, n) => n + 1);
  const total = sum(D.flat());
  const busiest = Math.max(...D.flat());
  const phaseTotal = D[0].map((_, f) => sum(D.map((row) => row[f])));
  const names = D.flatMap((_, p) => recipe.stations.map((name) => (D.length > 1 ? `${name} ${p}` : name)));
  return {
    workers,
    steps_per_second: X,
    lower: X.map((x, n) => x * Math.exp(-beside(n, tail))),
    upper: X.map((x, n) => x * Math.exp(beside(n, 1 - tail))),
    single: X[0],
    batch_size: settings.batch_size,
    parameter_servers: D.length,
    nodes: workers.map((n) => n + D.length),
    stations: names,
    utilization: X.map((x) => D.flat().map((seconds) => Math.min(x * seconds, 1))),
    residence_time: spent.map((phase) =>
      D.flatMap((row) => row.map((seconds, f) => seconds * (phase[f] / Math.max(phaseTotal[f], 1e-300)))),
    ),
    think_time: X.map(() => Z),
    bound_lower: workers.map((n) => n / (Z + n * (n > 1 ? 1 + recipe.handover : 1) * total)),
    bound_upper: workers.map((n) => Math.min(n / (total + Z), busiest > 0 ? 1 / busiest : Infinity)),
    saturation_workers: busiest > 0 ? (total + Z) / busiest : Infinity,
    bottleneck: names[D.flat().indexOf(busiest)],
    confidence: recipe.confidence,
    profiled_workers: changed ? 0 : servers.profiled_workers,
    measured: changed ? [] : servers.measured,
    method: servers.method,
    synchronous: false,
  };
}

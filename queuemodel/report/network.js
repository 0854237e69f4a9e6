// The closed network of asynchronous training, as queuemodel.models solves it: the same numbers to 1e-9.
// `recipe` is what TrainingModel.recipe gives; times are in seconds, bandwidths in bytes per second.

const sum = (values) => values.reduce((total, value) => total + value, 0);

const onOtherLinks = (recipe, { bandwidth }) => bandwidth !== null && bandwidth !== recipe.bandwidth;

/** Demands of one step (fetch, push, update, worker) on the machines of `settings` (Changes.demands). */
function demandsOn(recipe, settings, { fetch, push, update, worker }) {
  if (onOtherLinks(recipe, settings)) {
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

/** Share of a link that 1, 2, ... of n workers use (Flights.rates); `there` and `here`: mean numbers in both directions. */
function linkRates(least, here, there, n, levels) {
  const p = Math.min(Math.max(there / Math.max(n - 1 - here, 1e-300), 0), 1 - 1e-9);
  return Array.from({ length: levels }, (_, level) => {
    const own = level + 1;
    const others = Math.max(n - own, 0);
    let exactly = (1 - p) ** others;
    let used = 0;
    let more = 1;
    for (let K = 0; K <= Math.min(levels + 1, n); K += 1) {
      used += exactly * Math.min(own * (K > 1 ? Math.max(1 / K, least) : 1), 1);
      more -= exactly;
      exactly *= (p / (1 - p)) * (Math.max(others - K, 0) / (K + 1));
    }
    return used + Math.max(more, 0) * Math.min(own * Math.max(1 / Math.max(others, 1), least), 1);
  });
}

/** Throughput (n,) and time of each phase (n, F) of 1 to `most` workers (ParallelServers): mean-value analysis. */
function meanValueAnalysis({ repulsion, few_flows, most_levels: mostLevels }, D, Z, most) {
  const phases = D[0].map((_, f) => D.map((row) => row[f]).sort((a, b) => b - a));
  const busiest = phases.map((row) => row[0]);
  const met = phases.map((row) => (row.length > 1 ? row[0] - row[1] : row[0]));
  const least = (few_flows ? few_flows.sizes : []).map((size, f) =>
    Math.min(Math.max((few_flows.bytes * sum(phases[f])) / size, few_flows.seconds) / few_flows.buffer, 1),
  );
  const levels = Math.min(Math.max(D.length, Math.ceil(1 / Math.min(1, ...least))) - 1, mostLevels, most);
  const beside = phases.map((row) =>
    Array.from({ length: levels }, (_, j) => sum(row.slice(j + 1)) / Math.max(row[0], 1e-300)),
  );
  let there = phases.map(() => Array.from({ length: levels + 1 }, (_, j) => (j === 0 ? 1 : 0)));
  const X = [];
  const spent = [];
  let Q = busiest.map(() => 0);
  let U = Q;
  let best = 0;
  for (let n = 1; n <= most; n += 1) {
    const slowness = beside.map((row, f) => {
      const rates = f < least.length ? linkRates(least[f], Q[f], Q[1 - f], n, levels) : null;
      return row.map((seconds, j) => (rates ? (j + 1) / rates[j] : j + 1) + seconds);
    });
    const neighbour = 1 / (2 * Math.max(n - 1, 1));
    const spared = met.map((seconds, f) => repulsion * seconds * U[f] * (few_flows ? neighbour : 1 - U[f]));
    const found = there.map((p, f) => {
      const share = spared[f] / Math.max(busiest[f] * Q[f], 1e-300);
      return slowness[f].map((_, j) => p[j] + share * ((j + 1) * p[j + 1] - j * p[j]));
    });
    const phase = busiest.map(
      (seconds, f) => seconds * (1 + Q[f] + sum(found[f].map((p, j) => p * (slowness[f][j] - j - 1)))) - spared[f],
    );
    best = Math.max(best, Math.min(n / (Z + sum(phase)), 1 / Math.max(...busiest, 1e-300)));
    Q = phase.map((seconds) => best * seconds);
    U = busiest.map((seconds) => best * seconds);
    there = found.map((row, f) => {
      const p = row.map((one, j) => (U[f] * slowness[f][j] * one) / (j + 1));
      const idle = 1 - U[f] - sum(p.map((one, j) => (1 - (j + 1) / slowness[f][j]) * one));
      const all = [Math.max(idle, 0), ...p];
      const total = Math.max(sum(all), 1);
      return all.map((one) => one / total);
    });
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

/** Logarithms of throughput (n, draws) of the fit's draws: its uncertainty. */
function drawnThroughputs(recipe, settings, shards, most) {
  const drawn = Array.from({ length: most }, () => []);
  for (let i = 0; i < recipe.draws.worker.length; i += 1) {
    const seen = Object.fromEntries(Object.entries(recipe.draws).map(([name, values]) => [name, values[i]]));
    const demands = demandsOn(recipe, settings, seen);
    const { X } = meanValueAnalysis(recipe, stationDemands(recipe, shards, demands), demands.worker, most);
    X.forEach((x, n) => drawn[n].push(Math.log(x)));
  }
  return drawn.map((row) => row.sort((a, b) => a - b));
}

/** The curve of 1 to `settings.most_workers` workers (TrainingModel.what_if and .throughput). */
function solveNetwork(recipe, settings) {
  const most = settings.most_workers;
  const servers = recipe.servers[settings.parameter_servers];
  const sameWork = settings.batch_size === recipe.batch_size && settings.accelerator_speed === 1;
  const changed = onOtherLinks(recipe, settings) || !sameWork;
  const demands = demandsOn(recipe, settings, recipe.demands);
  const D = stationDemands(recipe, servers.shards, demands);
  const Z = demands.worker;
  const { X, spent } = meanValueAnalysis(recipe, D, Z, most);
  const drawn = drawnThroughputs(recipe, settings, servers.shards, most);
  const underBBRRecipe = recipe.few_flows_if_bbr && { ...recipe, few_flows: recipe.few_flows_if_bbr };
  const underBBR = underBBRRecipe && {
    X: meanValueAnalysis(underBBRRecipe, D, Z, most).X,
    drawn: drawnThroughputs(underBBRRecipe, settings, servers.shards, most),
  };
  const tail = (1 - recipe.confidence) / 2;
  const own = (n) => recipe.reach * (changed || !servers.error.length ? recipe.elsewhere : servers.error[n]);
  const end = (found, n, sign) => {
    const apart = sign * (quantile(found.drawn[n], sign > 0 ? 1 - tail : tail) - Math.log(found.X[n]));
    return found.X[n] * Math.exp(sign * Math.hypot(Math.max(apart, 0), own(n)));
  };
  const kinds = [{ X, drawn }, underBBR].filter(Boolean);
  const discrepancy = changed ? null : servers.discrepancy; // factors to the middle, the lower and the upper end
  const bent = X.map((x, n) => (discrepancy ? x * discrepancy[0][n] : x));
  const slower = X.map((x, n) => x / bent[n]);
  const workers = X.map((_, n) => n + 1);
  const total = sum(D.flat());
  const busiest = Math.max(...D.flat());
  const phaseTotal = D[0].map((_, f) => sum(D.map((row) => row[f])));
  const names = D.flatMap((_, p) => recipe.stations.map((name) => (D.length > 1 ? `${name} ${p}` : name)));
  return {
    workers,
    steps_per_second: bent,
    lower: X.map((x, n) => (discrepancy ? x * discrepancy[1][n] : Math.min(...kinds.map((one) => end(one, n, -1))))),
    upper: X.map((x, n) => (discrepancy ? x * discrepancy[2][n] : Math.max(...kinds.map((one) => end(one, n, 1))))),
    single: bent[0],
    batch_size: settings.batch_size,
    parameter_servers: D.length,
    nodes: workers.map((n) => n + D.length),
    stations: names,
    utilization: bent.map((x) => D.flat().map((seconds) => Math.min(x * seconds, 1))),
    residence_time: spent.map((phase, n) =>
      D.flatMap((row) => row.map((seconds, f) => (slower[n] * seconds * phase[f]) / Math.max(phaseTotal[f], 1e-300))),
    ),
    think_time: slower.map((factor) => factor * Z),
    bound_lower: workers.map((n) => n / (Z + n * total) / slower[n - 1]),
    bound_upper: workers.map((n) => Math.min(n / (total + Z), busiest > 0 ? 1 / busiest : Infinity) / slower[n - 1]),
    saturation_workers: busiest > 0 ? (total + Z) / busiest : Infinity,
    bottleneck: busiest > 0 ? names[D.flat().indexOf(busiest)] : "",
    confidence: recipe.confidence,
    profiled_workers: changed ? 0 : servers.profiled_workers,
    measured: changed ? [] : servers.measured,
    method: servers.method,
    synchronous: false,
  };
}

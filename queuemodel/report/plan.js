// How many workers to pay for, as queuemodel.curves.plan answers; null where a number is not known.

/** The base of speedup and efficiency, where it is not one worker. */
const overBase = (curve) => (curve.base ? ` over ${curve.base}` : "");

/** Questions and answers; `asked` has epochs, dataset_size, deadline (s), price_per_node_hour, budget, min_efficiency. */
function planWorkers(curve, asked) {
  const examples = asked.epochs === null || asked.dataset_size === null ? NaN : asked.epochs * asked.dataset_size;
  const price = asked.price_per_node_hour === null ? NaN : asked.price_per_node_hour;
  const time = (X) => X.map((x) => examples / (x * curve.batch_size));
  const cost = (X) => time(X).map((seconds, i) => (seconds / 3600) * price * curve.nodes[i]);
  const inTime = (X) => time(X).map((seconds) => seconds <= asked.deadline);
  const within = `within ${Number((asked.deadline / 3600).toPrecision(4))} h`;
  const questions = [];
  if (asked.deadline !== null && !Number.isNaN(examples)) {
    questions.push({ goal: `smallest ${within}`, rule: (X) => inTime(X).indexOf(true) });
  }
  if (asked.price_per_node_hour !== null && !Number.isNaN(examples)) {
    questions.push({ goal: "cheapest", rule: (X) => least(cost(X)) });
    if (asked.deadline !== null) {
      const rule = (X) => least(cost(X).map((money, i) => (inTime(X)[i] ? money : Infinity)));
      questions.push({ goal: `cheapest ${within}`, rule });
    }
  }
  if (asked.budget !== null && !Number.isNaN(examples * price)) {
    const rule = (X) => least(time(X).map((seconds, i) => (cost(X)[i] <= asked.budget ? seconds : Infinity)));
    questions.push({ goal: `fastest within a budget of ${Number(asked.budget.toPrecision(6))}`, rule, openBelow: true });
  }
  if (asked.min_efficiency !== null) {
    const most = (i) => Math.max(curve.bound_upper[i] ?? Infinity, curve.steps_per_second[i]);
    const share = (x, i) => (curve.workers[i] === curve.base_workers ? 1 : Math.min(x, most(i)) / (curve.workers[i] * curve.single));
    const efficient = (x, i) => share(x, i) >= asked.min_efficiency;
    const rule = (X) => X.map(efficient).lastIndexOf(true);
    questions.push({ goal: `efficiency >= ${asked.min_efficiency}${overBase(curve)}`, rule, openBelow: true });
  }
  return questions.map((question) => choose(curve, question, [time, cost]));
}

function least(costs) {
  return Number.isFinite(Math.min(...costs)) ? costs.indexOf(Math.min(...costs)) : -1;
}

/** The answer on the curve, and the least and largest on it and on both ends of its interval. */
function choose(curve, { goal, rule, openBelow = false }, measures) {
  const ends = [curve.steps_per_second, curve.upper, curve.lower];
  const [found, , slow] = ends.map(rule);
  const known = ends
    .map(rule)
    .filter((i) => i >= 0)
    .map((i) => curve.workers[i]);
  const choice = {
    goal,
    workers: found < 0 ? null : curve.workers[found],
    workers_low: known.length && !(slow < 0 && openBelow) ? Math.min(...known) : null,
    workers_high: known.length && !(slow < 0 && !openBelow) ? Math.max(...known) : null,
  };
  ["time", "cost"].forEach((name, which) => {
    ["", "_low", "_high"].forEach((end, i) => {
      const value = found < 0 ? NaN : measures[which](ends[i])[found];
      choice[name + end] = Number.isFinite(value) ? value : null;
    });
  });
  return choice;
}

// How many workers to pay for, as queuemodel.curves.plan answers; null where a number is not known.

const { limits: LIMITS, questions: QUESTIONS } = data.goals;
const currency = data.questions.currency || "";

/** The base of speedup and efficiency, where it is not one worker. */
const overBase = (curve) => (curve.base ? ` over ${curve.base}` : "");

const digits = (value, count = 3) => Number(value.toPrecision(count));
const exactly = (value) => digits(value, 10).toLocaleString("en-US", { maximumFractionDigits: 10 });

/** Three digits, and all before the point. */
const amount = (value) => (value >= 999.5 ? Math.round(value).toLocaleString("en-US") : String(digits(value)));
const money = (value) => `${amount(value)} ${currency}`.trim();

/** A time and its interval in one unit. */
function timeSpan(seconds, low, high) {
  const [unit, length] = Object.entries(UNITS).find(([, one]) => seconds >= 2 * one) || ["s", 1];
  const [middle, least, most] = [seconds, low, high].map((end) => digits(end / length));
  return `${middle} ${unit} (${least} to ${most} ${unit})`;
}

/** Workers as their user counts them, and what they do. */
function named(curve, workers, does = "") {
  const each = curve.workers_per_node;
  const nodes = Math.ceil(workers / each);
  const who = each > 1 ? `${counted(nodes, "node")} (${counted(workers, "GPU")})` : counted(workers, "worker");
  return does ? `${who} ${nodes > 1 ? does : does.replace(/^\w+/, "$&s")}` : who;
}

/** Whether workers fill nodes, or are on a part of one. */
const fills = (curve, workers) => workers % curve.workers_per_node === 0 || workers < curve.workers_per_node;

/** What is measured of steps per second on each number of workers; times are NaN without work. */
function measuresOf(curve, asked) {
  const { price_per_node_hour: price, epochs, dataset_size: size } = asked;
  const each = curve.steps_per_round.length ? curve.steps_per_round : curve.workers;
  const work = asked.steps ?? asked.examples ?? asked.tokens ?? (epochs && size ? epochs * size : NaN);
  const perStep = (i) => (asked.steps ? 1 / each[i] : curve.batch_size);
  const most = (x, i) => Math.max(curve.bound_upper[i] ?? Infinity, curve.steps_per_second[i]);
  const share = (x, i) => Math.min(x, most(x, i)) / (curve.workers[i] * curve.single);
  const time = (X) => X.map((x, i) => work / (x * perStep(i)));
  return {
    time,
    cost: (X) => time(X).map((seconds, i) => (seconds / 3600) * (price ?? NaN) * curve.nodes[i]),
    rate: (X) => X.map((x) => x * curve.batch_size),
    efficiency: (X) => X.map((x, i) => (curve.workers[i] === curve.base_workers ? 1 : share(x, i))),
    fewest: () => curve.workers,
    most: () => curve.workers.map((n) => -n),
    none: (X) => X.map(() => 0),
  };
}

/** Questions and answers, the one that answers most first; `asked` has the work and the goals. */
function planWorkers(curve, asked) {
  const measures = measuresOf(curve, asked);
  const timed = !Number.isNaN(measures.time(curve.steps_per_second)[0]);
  const put = (goal) => (asked[goal] ?? null) !== null && (timed || !["time", "cost", "none"].includes(LIMITS[goal].measure));
  return QUESTIONS.filter(([goals]) => goals.every(put)).map((question) => choose(curve, asked, measures, question));
}

/** The answer at the slower end of the interval, else at the curve; and those at the curve and both ends. */
function choose(curve, asked, measures, [[goal], name, does, least]) {
  const { measure, sign, fewer, certain, words } = LIMITS[goal];
  const [X, low, high] = [curve.steps_per_second, curve.lower, curve.upper];
  const shown = (value, number, place) => {
    if (measure === "time") {
      const [unit, length] = Object.entries(UNITS).find(([one, length]) => one !== "days" && value >= length) || ["s", 1];
      return `${digits(value / length, place)} ${unit}`;
    }
    const unit = { cost: currency, rate: `${curve.unit || "steps"}/s`, efficiency: overBase(curve).trim() }[measure];
    return `${number(value)} ${unit || ""}`.trim();
  };
  const limit = shown(asked[goal], exactly, 4);
  const within = words.replace("{0}", limit);
  const inWords = (text) => text.replace("{0}", within).replace("{1}", limit);
  const best = (met, at) => {
    const value = measures[least](at);
    const good = measures[measure](met).map((one, i) => fills(curve, curve.workers[i]) && sign * one <= sign * asked[goal]);
    return curve.workers.reduce((found, _, i) => (good[i] && (found === null || value[i] < value[found]) ? i : found), null);
  };
  const [point, slow, quick] = [X, low, high].map((x) => best(x, x));
  const sure = certain ? best(low, X) : null;
  const found = sure ?? point;
  const known = [point, slow, quick, sure].filter((i) => i !== null).map((i) => curve.workers[i]);
  const at = (i) => (i === null ? null : curve.workers[i]);
  const choice = {
    goal: inWords(name),
    workers: at(found),
    workers_point: at(point),
    workers_low: known.length && !(slow === null && fewer) ? Math.min(...known) : null,
    workers_high: known.length && !(slow === null && !fewer) ? Math.max(...known) : null,
    nodes: found === null ? null : curve.nodes[found],
    probability: sure === null ? null : (1 + data.confidence) / 2,
  };
  for (const name of ["time", "cost"]) {
    [X, high, low].forEach((x, i) => {
      const value = found === null ? NaN : measures[name](x)[found];
      choice[name + ["", "_low", "_high"][i]] = Number.isFinite(value) ? value : null;
    });
  }
  const chance = choice.probability ? ` with ${digits(100 * choice.probability, 4)} % probability` : " by the point estimate only";
  const unmet = () => {
    const values = measures[measure](X).map((one, i) => (fills(curve, curve.workers[i]) ? sign * one : Infinity));
    const near = values.indexOf(Math.min(...values));
    const nearest = named(curve, curve.workers[near], `come nearest, to ${shown(sign * values[near], amount, 3)}`);
    const factor = digits(((sign * values[near]) / asked[goal]) ** sign);
    return `${within} is not met: ${nearest}${fewer ? "" : `; it needs ${factor} times the throughput`}`;
  };
  choice.answer = found === null ? unmet() : answered(curve, choice, inWords(does) + (certain ? chance : ""));
  return choice;
}

/** A choice in one sentence. */
function answered(curve, choice, does) {
  const { workers, workers_point: point, time, cost } = choice;
  const beside = point === workers ? "" : `, ${named(curve, point)} by the point estimate`;
  const paid = cost === null ? "" : `, ${money(cost)} (${amount(choice.cost_low)} to ${money(choice.cost_high)})`;
  const spent = time === null ? "" : `: ${timeSpan(time, choice.time_low, choice.time_high)}${paid}; ${percent(data.confidence)} intervals`;
  return named(curve, workers, does) + beside + spent;
}

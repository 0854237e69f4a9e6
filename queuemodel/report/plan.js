// How many workers to pay for, as queuemodel.curves.plan answers; null where a number is not known.

const { limits: LIMITS, questions: QUESTIONS } = data.goals;
const currency = data.questions.currency || "";
const UNITS = { days: 86400, h: 3600, min: 60, s: 1 };

/** The base of speedup and efficiency, where it is not one worker. */
const overBase = (curve) => (curve.base ? ` over ${curve.base}` : "");

const exactly = (value) => digits(value, 10).toLocaleString("en-US", { maximumFractionDigits: 10 });

/** Three digits, and all before the point. */
const amount = (value) => (value >= 999.5 ? Math.round(value).toLocaleString("en-US") : String(digits(value)));
const money = (value) => `${amount(value)} ${currency}`.trim();

/** The largest unit of time of which there are two, and its seconds. */
const unitOf = (seconds) => Object.entries(UNITS).find(([, length]) => seconds >= 2 * length) || ["s", 1];

function duration(seconds) {
  const [unit, length] = unitOf(seconds);
  return `${digits(seconds / length)} ${unit}`;
}

/** The ends of an interval in the unit of its middle. */
function timeEnds(seconds, low, high) {
  const [unit, length] = unitOf(seconds);
  return `${digits(low / length)} to ${digits(high / length)} ${unit}`;
}

const timeSpan = (...ends) => `${duration(ends[0])} (${timeEnds(...ends)})`;

/** The workers of a place on the curve as their user counts them, and what they do. */
function named(curve, i, does) {
  const who = curve.names[i];
  return `${who} ${who.startsWith("1 ") ? does.replace(/^\w+/, "$&s") : does}`;
}

/** Whether workers fill nodes, or are on a part of one. */
const fills = (curve, workers) => workers % curve.workers_per_node === 0 || workers < curve.workers_per_node;

/** What is measured of steps per second on each number of workers; times are NaN without work. */
function measuresOf(curve, asked) {
  const { price_per_node_hour: price, epochs, dataset_size: size } = asked;
  const each = curve.in_rounds ? curve.in_one : curve.workers;
  const work = asked.steps ?? asked.examples ?? asked.tokens ?? (epochs && size ? epochs * size : NaN);
  const perStep = (i) => (asked.steps ? 1 / each[i] : asked.tokens ? curve.work.tokens : curve.batch_size);
  const most = (i) => Math.max(curve.bound_upper[i] ?? Infinity, curve.steps_per_second[i]);
  const time = (X) => X.map((x, i) => work / (x * perStep(i)));
  return {
    time,
    cost: (X) => time(X).map((seconds, i) => (seconds / 3600) * (price ?? NaN) * curve.nodes[i]),
    efficiency: (X) => X.map((x, i) =>
      (curve.workers[i] === curve.base_workers ? 1 : Math.min(x, most(i)) / (curve.workers[i] * curve.single))),
    fewest: () => curve.workers,
    most: () => curve.workers.map((n) => -n),
    none: (X) => X.map(() => 0),
  };
}

/** Questions and answers, the one that answers most first; `asked` has the work and the goals. */
function planWorkers(curve, asked) {
  const measures = measuresOf(curve, asked);
  const timed = !Number.isNaN(measures.time(curve.steps_per_second)[0]);
  const put = (goal) => (asked[goal] ?? null) !== null && (timed || LIMITS[goal].measure === "efficiency");
  return QUESTIONS.filter(([goals]) => goals.every(put)).map((question) => choose(curve, asked, measures, question));
}

/** The answer at the slower end of the interval, else at the curve; `i` is its place on the curve. */
function choose(curve, asked, measures, [[goal], name, does, least]) {
  const { measure, sign, fewer, certain, words } = LIMITS[goal];
  const [X, low, high] = [curve.steps_per_second, curve.lower, curve.upper];
  const shown = (value, number, place) => {
    if (measure === "time") {
      const [unit, length] = Object.entries(UNITS).find(([one, length]) => one !== "days" && value >= length) || ["s", 1];
      return `${digits(value / length, place)} ${unit}`;
    }
    return `${number(value)} ${{ cost: currency, efficiency: overBase(curve).trim() }[measure] || ""}`.trim();
  };
  const limit = shown(asked[goal], exactly, 4);
  const within = words.replace("{0}", limit);
  const inWords = (text) => text.replace("{0}", within).replace("{1}", limit);
  const best = (met) => {
    const value = measures[least](X);
    const good = measures[measure](met).map((one, i) => fills(curve, curve.workers[i]) && sign * one <= sign * asked[goal]);
    return curve.workers.reduce((found, _, i) => (good[i] && (found === null || value[i] < value[found]) ? i : found), null);
  };
  const [point, sure] = [best(X), certain ? best(low) : null];
  const i = sure ?? point;
  const at = (one) => (one === null ? null : curve.workers[one]);
  const choice = { goal: inWords(name), i, workers: at(i), workers_point: at(point), nodes: i === null ? null : curve.nodes[i] };
  choice.probability = sure === null ? null : (1 + data.confidence) / 2;
  for (const name of ["time", "cost"]) {
    [X, high, low].forEach((x, k) => {
      const value = i === null ? NaN : measures[name](x)[i];
      choice[name + ["", "_low", "_high"][k]] = Number.isFinite(value) ? value : null;
    });
  }
  const chance = choice.probability ? ` with ${percent(choice.probability)} probability` : " by the point estimate only";
  const unmet = () => {
    const values = measures[measure](X).map((one, i) => (fills(curve, curve.workers[i]) ? sign * one : Infinity));
    const near = values.indexOf(Math.min(...values));
    const nearest = named(curve, near, `come nearest, to ${shown(sign * values[near], amount, 3)}`);
    const factor = digits(((sign * values[near]) / asked[goal]) ** sign);
    return `${within} is not met: ${nearest}${fewer ? "" : `; it needs ${factor} times the throughput`}`;
  };
  choice.answer = i === null ? unmet() : answered(curve, choice, point, inWords(does) + (certain ? chance : ""));
  return choice;
}

/** A choice in one sentence. */
function answered(curve, choice, point, does) {
  const { i, time, cost } = choice;
  const beside = point === i ? "" : `, ${curve.names[point]} by the point estimate`;
  const paid = cost === null ? "" : `, ${money(cost)} (${amount(choice.cost_low)} to ${money(choice.cost_high)})`;
  const spent = time === null ? "" : `: ${timeSpan(time, choice.time_low, choice.time_high)}${paid}; ${percent(data.confidence)} intervals`;
  return named(curve, i, does) + beside + spent;
}

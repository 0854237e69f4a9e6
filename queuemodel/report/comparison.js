// The report of a comparison: loss against time, time to the target, and the strategies' table.

const time = data.relative ? "time_vs_one" : "seconds";
const start = { price_per_node_hour: data.price_per_node_hour, deadline: null };
const timed = data.rows.filter((row) => row[time] !== null);
const specs = [PRICE, mayBe("deadline", "deadline", 0.1, 1e9, { unit: "s" })];
const places = placesFor("losses", "times", "strategies");
const hidden = new Set();

/** The strategies with their cost at the price, and whether they arrive by the deadline. */
function answer({ price_per_node_hour: price, deadline }) {
  return data.rows.map((row) => {
    const told = { ...row };
    delete told.cost;
    if (price !== null) told.cost = row[time] === null ? null : (row[time] * data.nodes * price) / 3600;
    if (deadline !== null) {
      const [late, surely] = [row[`${time}_low`], row[`${time}_high`]].map((end) => end !== null && end <= deadline);
      told.in_time = surely ? "yes" : late ? "perhaps" : "no";
    }
    return told;
  });
}

function refresh() {
  showControls();
  showLosses();
  showTimes();
  const rows = answer(settings);
  const ends = timed.length ? ["steps_per_second_low", "steps_per_second_high"] : ["probability_best"];
  const first = ["strategy", time, `${time}_low`, `${time}_high`, "cost", "in_time", "probability_best"];
  const known = [...new Set([...first, ...Object.keys(rows[0])])].filter(
    (name) => !ends.includes(name) && rows.some((row) => (row[name] ?? null) !== null),
  );
  const shown = rows.map((row) => Object.fromEntries(known.map((name) => [name, row[name] ?? null])));
  places.strategies.replaceChildren(table("Strategies, the fastest first", shown, { show: { probability_best: (share) => (share === null ? "-" : percent(share)) } }));
}

/** The deadline, where it lies on the axis. */
function deadlineOn({ low, high }) {
  const x = settings.deadline;
  return x !== null && x > low && x < high ? [{ kind: "vertical", x, class: "knee", text: "deadline" }] : [];
}

function showLosses() {
  if (!data.losses.length) return;
  const { colors } = data.look;
  const lines = data.losses.flatMap(({ strategy, seconds, least, largest, mean }, i) => {
    if (hidden.has(strategy)) return [];
    const look = { x: seconds, color: colors[i % colors.length] };
    const dashes = `dash${Math.floor(i / colors.length) % 4}`;
    const line = { kind: "line", ...look, y: mean, class: dashes, label: strategy };
    return [{ kind: "band", ...look, low: least, high: largest }, line];
  });
  const within = (name) => data.losses.flatMap((one) => one[name]).filter((value) => value > 0);
  const x = { low: Math.min(...within("seconds")), high: Math.max(...within("seconds")), label: "seconds", log: true };
  const y = { low: Math.min(...within("least")), high: Math.max(...within("largest")), label: "loss", log: true };
  const target = data.target === null ? [] : [{ kind: "horizontal", y: data.target, text: "target" }];
  const title = "Loss against time, by strategy; first and last losses are in the table below";
  const rows = data.losses.map((one) => ({
    strategy: one.strategy,
    "first loss": one.mean[0],
    "last loss": one.mean.at(-1),
    "after (s)": one.seconds.at(-1),
  }));
  const marks = [...lines, ...target, ...deadlineOn(x)];
  figure(places.losses, { title, x, y, marks, height: 420 }, "Mean losses", rows);
}

function showTimes() {
  const [rows, name, label] = timed.length
    ? [timed, time, data.relative ? "time, in those of one worker alone" : "time to the target (s)"]
    : [data.rows, "steps_per_second", "steps of all workers per second"];
  const ends = ["", "_low", "_high"].map((end) => rows.map((row) => row[name + end]));
  const known = ends.flat().filter((value) => value !== null);
  const x = { low: Math.min(...known) / 1.1, high: Math.max(...known) * 1.1, label, log: true };
  const [middle, low, high] = ends.map((values) => values.map((value) => value ?? x.high)); // some seeds never arrive
  const y = rows.map((_, i) => i);
  const marks = [
    { kind: "spans", y, low, high, class: "model faint", share: 0.5, label: `${percent(data.confidence)} interval` },
    { kind: "dots", x: middle, y, class: "model", label: "median" },
    ...(timed.length ? deadlineOn(x) : []),
  ];
  const title = `${label}, by strategy; the numbers are in the table below`;
  const names = rows.map((row) => row.strategy);
  drawChart(places.times, { title, x, y: { names }, marks, height: 80 + 24 * rows.length });
}

function layOut() {
  const boxes = data.losses.map(({ strategy }) => {
    const change = () => {
      if (!hidden.delete(strategy)) hidden.add(strategy);
      showLosses();
    };
    return h("label", {}, h("input", { type: "checkbox", checked: "", change }), ` ${strategy}`);
  });
  const fields = [...(timed.length && !data.relative ? Object.values(controls) : []), ...boxes];
  const said = "Times are those that the profile predicts; steps to the target are those of what was trained.";
  return [
    header(h("p", { class: "lead" }, data.headline)),
    ...(fields.length ? [h("fieldset", { class: "controls" }, h("legend", {}, "What if"), ...fields)] : []),
    ...(data.losses.length ? [section("Loss against time", places.losses)] : []),
    section(timed.length ? "Time to the target" : "Steps per second", places.times, places.strategies),
    section("How they were compared, and its limits", list([...data.caption.split("; "), said])),
  ];
}

begin();

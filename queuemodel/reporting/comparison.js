// The report of a comparison: loss against time, time to the target, and the strategies' table.

const time = data.relative ? "time_vs_one" : "seconds";
const start = { price_per_node_hour: data.price_per_node_hour, deadline: null };
const timed = data.rows.filter((row) => row[time] !== null);
const specs = [
  PRICE,
  {
    name: "deadline",
    label: "deadline",
    unit: "s",
    least: 0.1,
    most: 1e6,
    limit: 1e9,
    log: true,
    optional: true,
    placeholder: "none",
  },
];
const controls = Object.fromEntries(specs.map((spec) => [spec.name, control(spec, (value) => set(spec.name, value))]));
const places = Object.fromEntries(
  ["losses", "times", "strategies"].map((id) => [id, h("div", { id, class: "figure" })]),
);
const hidden = new Set();
let settings = { ...start };

function set(name, value) {
  settings[name] = value;
  refresh();
  link(settings, start);
}

function restore() {
  settings = { ...start, ...linked(specs) };
  refresh();
}

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
  for (const [name, element] of Object.entries(controls)) element.update(settings[name]);
  showLosses();
  showTimes();
  const rows = answer(settings);
  const ends = timed.length ? ["steps_per_second_low", "steps_per_second_high"] : ["probability_best"];
  const first = ["strategy", time, `${time}_low`, `${time}_high`, "cost", "in_time", "probability_best"];
  const known = [...new Set([...first, ...Object.keys(rows[0])])].filter(
    (name) => !ends.includes(name) && rows.some((row) => row[name] !== null && row[name] !== undefined),
  );
  const shown = rows.map((row) => Object.fromEntries(known.map((name) => [name, row[name] ?? null])));
  places.strategies.replaceChildren(table("Strategies, the fastest first", shown, { probability_best: percent }));
}

const look = (i) => ({
  color: data.look.colors[i % data.look.colors.length],
  class: `dash${Math.floor(i / data.look.colors.length) % 4}`,
});

function showLosses() {
  if (!data.losses.length) return;
  const shown = data.losses.map((one, i) => ({ ...one, ...look(i) })).filter((one) => !hidden.has(one.strategy));
  const marks = shown.flatMap((one) => [
    { kind: "band", x: one.seconds, low: one.least, high: one.largest, color: one.color },
    { kind: "line", x: one.seconds, y: one.mean, color: one.color, class: one.class, label: one.strategy },
  ]);
  if (data.target !== null) marks.push({ kind: "horizontal", y: data.target, text: "target" });
  const within = (name) => data.losses.flatMap((one) => one[name]).filter((value) => value > 0);
  const x = { low: Math.min(...within("seconds")), high: Math.max(...within("seconds")), label: "seconds", log: true };
  if (settings.deadline !== null && settings.deadline > x.low && settings.deadline < x.high) {
    marks.push({ kind: "vertical", x: settings.deadline, class: "knee", text: "deadline" });
  }
  const y = { low: Math.min(...within("least")), high: Math.max(...within("largest")), label: "loss", log: true };
  const picture = h("div");
  const rows = data.losses.map((one) => ({
    strategy: one.strategy,
    "first loss": one.mean[0],
    "last loss": one.mean.at(-1),
    "after (s)": one.seconds.at(-1),
  }));
  places.losses.replaceChildren(picture, table("Mean losses", rows));
  drawChart(picture, {
    title: "Loss against time, by strategy; first and last losses are in the table below",
    x,
    y,
    marks,
    height: 420,
  });
}

function showTimes() {
  const unit = data.relative ? "time, in those of one worker alone" : "time to the target (s)";
  const [rows, low, middle, high, label] = timed.length
    ? [timed, `${time}_low`, time, `${time}_high`, unit]
    : [
        data.rows,
        "steps_per_second_low",
        "steps_per_second",
        "steps_per_second_high",
        "steps of all workers per second",
      ];
  const known = rows.flatMap((row) => [row[low], row[high], row[middle]]).filter((value) => value !== null);
  const [least, most] = [Math.min(...known) / 1.1, Math.max(...known) * 1.1];
  const column = (name) => rows.map((row) => row[name] ?? most); // some seeds never arrive
  const spans = { y: rows.map((_, i) => i), low: column(low), high: column(high), class: "model faint" };
  const marks = [
    { kind: "spans", ...spans, share: 0.5, label: `${percent(data.confidence)} interval` },
    { kind: "dots", x: column(middle), y: rows.map((_, i) => i), class: "model", label: "median" },
  ];
  if (timed.length && settings.deadline !== null && settings.deadline > least && settings.deadline < most) {
    marks.push({ kind: "vertical", x: settings.deadline, class: "knee", text: "deadline" });
  }
  drawChart(places.times, {
    title: `${label}, by strategy; the numbers are in the table below`,
    x: { low: least, high: most, label, log: true },
    y: { names: rows.map((row) => row.strategy) },
    marks,
    height: 80 + 24 * rows.length,
  });
}

function layOut() {
  const parts = [h("header", {}, h("h1", {}, data.title), h("p", {}, data.caption), h("p", {}, data.headline))];
  const fields = h("fieldset", { class: "controls" }, h("legend", {}, "What if"));
  if (timed.length && !data.relative) fields.append(...Object.values(controls));
  for (const { strategy } of data.losses) {
    const box = h("input", {
      type: "checkbox",
      checked: "",
      change: () => {
        if (box.checked) hidden.delete(strategy);
        else hidden.add(strategy);
        showLosses();
      },
    });
    fields.append(h("label", {}, box, ` ${strategy}`));
  }
  if (fields.children.length > 1) parts.push(fields);
  if (data.losses.length) parts.push(section("Loss against time", places.losses));
  parts.push(section(timed.length ? "Time to the target" : "Steps per second", places.times, places.strategies));
  const said = [
    data.note,
    "Times are those that the profile predicts; steps to the target are those of what was trained.",
  ];
  parts.push(section("What this cannot know", h("ul", {}, ...said.filter(Boolean).map((one) => h("li", {}, one)))));
  page.replaceChildren(...parts, footer());
}

layOut();
restore();
window.addEventListener("hashchange", restore);
window.addEventListener("resize", refresh);

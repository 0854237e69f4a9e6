// Curves of all combinations of choices, which Python computed and packed (queuemodel.curves.page).

const { cells, unit, workers: knots, packed } = data.grid;
const asPredicted = Object.fromEntries(data.controls.map(({ name, value }) => [name, value]));
const first = cellOf(asPredicted).curve; // as predicted

/** Decode the rows of all cells. */
async function unpack() {
  for (const cell of packed.length ? cells : []) {
    const bytes = Uint8Array.from(atob(cell.rows), (char) => char.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const values = new Int16Array(await new Response(stream).arrayBuffer());
    const width = (4 + cell.curve.places.length) * knots.length + 2;
    const count = values.length / width; // rows, of which each column holds the differences
    for (let i = 0; i < values.length; i += 1) if (i % count) values[i] += values[i - 1];
    cell.row = (k) => Array.from({ length: width }, (_, j) => values[j * count + k] * unit);
  }
}

/** Values at the knots, linear in the logarithm of the workers between them. */
function interpolated(values, workers) {
  const right = Math.max(knots.findIndex((knot) => knot >= workers), 1);
  const [from, to] = [knots[right - 1], knots[right] ?? Infinity];
  const share = knots.length > 1 ? Math.log(workers / from) / Math.log(to / from) : 0;
  return share ? values[right - 1] * (1 - share) + values[right] * share : values[right - 1];
}

/** The cell of such settings, with the curve of its own choices. */
function cellOf(settings) {
  return cells.find(({ choices }) => Object.entries(choices).every(([name, value]) => settings[name] === value));
}

/** The curve of such settings. */
function curveOf(settings) {
  const cell = cellOf(settings);
  const { curve, base } = cell;
  if (packed.every((name) => settings[name] === asPredicted[name])) return curve;
  const controls = packed.map((name) => data.controls.find((one) => one.name === name));
  const row = cell.row(controls.reduce((k, { name, choices }) => k * choices.length + choices.indexOf(settings[name]), 0));
  const [knee, single] = row.slice(-2).map(Math.exp);
  const n = knots.length;
  const part = (k) => curve.workers.map((count) => interpolated(row.slice(k * n, (k + 1) * n), count));
  const X = part(0).map((value) => Math.exp(value + base));
  const [lower, upper, bound] = [1, 2, 3].map((k) => part(k).map((value, i) => X[i] * Math.exp(value)));
  return {
    ...curve, steps_per_second: X, lower, upper, bound_upper: curve.bound_upper.length ? bound : [],
    single: single * Math.exp(base), shares: curve.places.map((_, k) => part(4 + k)),
    saturation_workers: curve.saturation_workers === null ? null : knee, measured: [], profiled_workers: 0,
  };
}

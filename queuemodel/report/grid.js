// Curves between those that Python computed (queuemodel.curves.what_ifs): interpolated in logarithms.

const { cells, unit, workers: knots } = data.grid;
const asPredicted = Object.fromEntries(data.controls.map(({ name, value }) => [name, value]));

/** Decode the rows of all cells. */
async function unpack() {
  for (const cell of cells.filter(({ lines }) => lines.length)) {
    const packed = Uint8Array.from(atob(cell.rows), (char) => char.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    const values = new Int16Array(await new Response(stream).arrayBuffer());
    const width = (3 + cell.curve.places.length) * knots.length + 1;
    const count = values.length / width; // rows, of which each column holds the differences
    for (let i = 0; i < values.length; i += 1) if (i % count) values[i] += values[i - 1];
    cell.row = (k) => Array.from({ length: width }, (_, j) => values[j * count + k] * unit);
  }
}

/** Monotone piecewise cubics (Fritsch and Butland 1984) through rows at increasing knots `x`; `row` is a function. */
function pchip(x, row, at) {
  let i = 0;
  while (i < x.length - 2 && at > x[i + 1]) i += 1;
  const [wide, t] = [x[i + 1] - x[i], Math.min(Math.max((at - x[i]) / (x[i + 1] - x[i]), 0), 1)];
  const [left, right] = [row(i), row(i + 1)];
  const before = i > 0 ? row(i - 1) : null;
  const after = i < x.length - 2 ? row(i + 2) : null;
  return left.map((y, j) => {
    const slope = (right[j] - y) / wide;
    const from = before ? harmonic((y - before[j]) / (x[i] - x[i - 1]), slope, x[i] - x[i - 1], wide) : slope;
    const to = after ? harmonic(slope, (after[j] - right[j]) / (x[i + 2] - x[i + 1]), wide, x[i + 2] - x[i + 1]) : slope;
    const bend = (1 - t) ** 2 * t * from - (1 - t) * t ** 2 * to;
    return y + (right[j] - y) * t * t * (3 - 2 * t) + wide * bend;
  });
}

/** Slope at a knot from those left and right of it, over such widths. */
function harmonic(a, b, wideA, wideB) {
  if (a * b <= 0) return 0;
  return (3 * (wideA + wideB)) / ((2 * wideB + wideA) / a + (wideB + 2 * wideA) / b);
}

/** The curve of such settings. */
function curveOf(settings) {
  const cell = cells.find(({ choices }) => Object.entries(choices).every(([name, value]) => settings[name] === value));
  const { curve, base } = cell;
  const { accelerator_speed: speed = 1, bandwidth = null } = settings;
  const otherLink = bandwidth !== null && bandwidth !== asPredicted.bandwidth;
  if (speed === 1 && !otherLink) return curve;
  const line = cell.lines.find((one) => one.speed === speed && one.knots.length > 0 === otherLink);
  const at = otherLink ? Math.log(bandwidth / data.grid.bandwidth) : 0;
  const row = otherLink ? pchip(line.knots, (k) => cell.row(line.start + k), at) : cell.row(line.start);
  const n = knots.length;
  const part = (k) => row.slice(k * n, (k + 1) * n);
  const [x, low, high, ...shares] = Array.from({ length: 3 + curve.places.length }, (_, k) => part(k));
  const logs = knots.map(Math.log);
  const atWorkers = (values) =>
    curve.workers.map((count) => pchip(logs, (k) => [values[k]], Math.log(count))[0]);
  const X = atWorkers(x).map((value) => Math.exp(value + base));
  const [single, knee] = [Math.exp(x[0] + base), curve.saturation_workers === null ? null : Math.exp(row.at(-1))];
  return {
    ...curve,
    steps_per_second: X,
    lower: atWorkers(low).map((value, i) => X[i] * Math.exp(value)),
    upper: atWorkers(high).map((value, i) => X[i] * Math.exp(value)),
    single,
    shares: shares.map(atWorkers),
    saturation_workers: knee,
    bound_upper: curve.bound_upper.length && knee ? curve.workers.map((n) => single * Math.min(n, knee)) : [],
    measured: [],
    profiled_workers: 0,
  };
}

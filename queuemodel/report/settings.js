// What one can ask of the page of a curve: the settings that it begins with, and a control for each.

const network = data.network;
const MBIT = 125000;
const { workers: asked, min_efficiency: least_efficiency, epochs, ...questions } = data.questions;
const numbers = data.curve.workers;
const start = {
  workers: asked || numbers[Math.min(3, numbers.length - 1)],
  epochs: epochs || 1,
  ...questions,
  min_efficiency: least_efficiency ?? 0.5,
  ...(network ? { ...network.settings, most_workers: numbers.at(-1) } : {}),
};
if (network) start.bandwidth ??= network.bandwidth;

const specs = [
  { name: "workers", label: "workers", least: numbers[0], most: numbers.at(-1), whole: true },
  ...(network ? machineSpecs() : []),
  { name: "epochs", label: "epochs", least: 0.01, most: 1000, limit: 1e9, log: true },
  mayBe("dataset_size", "examples per epoch", 1, 1e9, 1e15, { whole: true, placeholder: "not known" }),
  mayBe("deadline", "deadline", 0.01, 1000, 1e5, { unit: "h", factor: 3600 }),
  PRICE,
  mayBe("min_efficiency", "least efficiency", 0.01, 1, 1),
];

function machineSpecs() {
  const counts = Object.keys(network.servers).map(Number);
  const rest = network.transferred[0] / (network.demands.fetch || 1) / network.link_efficiency / MBIT;
  const link = (network.bandwidth || 0) / MBIT || rest || 1000;
  const servers = { least: Math.min(...counts), most: Math.max(...counts), whole: true };
  const most = { least: 1, most: Math.min(network.most_workers, 128), limit: network.most_workers, whole: true };
  const optional = network.bandwidth === null;
  return [
    { name: "parameter_servers", label: "parameter servers", ...servers },
    mayBe("bandwidth", "bandwidth of each host's link", link / 100, link * 100, null, {
      unit: "Mbit/s", factor: MBIT, optional, placeholder: "as profiled", rest: link,
    }),
    { name: "accelerator_speed", label: "accelerator speed", unit: "× profiled", least: 0.1, most: 20, log: true },
    { name: "batch_size", label: "batch size of a worker", least: 1, most: 64 * network.batch_size, log: true, whole: true },
    { name: "most_workers", label: "curve up to", unit: "workers", ...most },
  ].filter((spec) => spec.name !== "bandwidth" || network.transferred.some((size) => size > 0));
}

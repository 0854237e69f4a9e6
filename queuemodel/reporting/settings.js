// What one can ask of the page of a curve: the settings that it begins with, and a control for each.

const network = data.network;
const start = startSettings();

function startSettings() {
  const asked = data.questions;
  const workers = data.curve.workers;
  const settings = {
    workers: asked.workers || workers[Math.min(3, workers.length - 1)],
    epochs: asked.epochs || 1,
    dataset_size: asked.dataset_size,
    deadline: asked.deadline,
    price_per_node_hour: asked.price_per_node_hour,
    min_efficiency: asked.min_efficiency === null ? 0.5 : asked.min_efficiency,
  };
  if (!network) return settings;
  const machines = { ...network.settings, most_workers: workers.at(-1) };
  if (machines.bandwidth === null) machines.bandwidth = network.bandwidth;
  return { ...settings, ...machines };
}

const MBIT = 125000;
const specs = [
  { name: "workers", label: "workers", least: data.curve.workers[0], most: data.curve.workers.at(-1), whole: true },
  ...(network ? machineSpecs() : []),
  { name: "epochs", label: "epochs", least: 0.01, most: 1000, limit: 1e9, log: true },
  {
    name: "dataset_size",
    label: "examples per epoch",
    least: 1,
    most: 1e9,
    limit: 1e15,
    log: true,
    whole: true,
    optional: true,
    placeholder: "not known",
  },
  {
    name: "deadline",
    label: "deadline",
    unit: "h",
    factor: 3600,
    least: 0.01,
    most: 1000,
    limit: 1e5,
    log: true,
    optional: true,
    placeholder: "none",
  },
  PRICE,
  { name: "min_efficiency", label: "least efficiency", least: 0.01, most: 1, limit: 1, log: true, optional: true },
];

function machineSpecs() {
  const counts = Object.keys(network.servers).map(Number);
  const rest = network.transferred[0] / (network.demands.fetch || 1) / network.link_efficiency / MBIT;
  const link = (network.bandwidth || 0) / MBIT || rest || 1000;
  const own = network.batch_size;
  return [
    {
      name: "parameter_servers",
      label: "parameter servers",
      least: Math.min(...counts),
      most: Math.max(...counts),
      whole: true,
    },
    {
      name: "bandwidth",
      label: "bandwidth of each host's link",
      unit: "Mbit/s",
      factor: MBIT,
      least: link / 100,
      most: link * 100,
      log: true,
      optional: network.bandwidth === null,
      placeholder: "as profiled",
      rest: link,
    },
    { name: "accelerator_speed", label: "accelerator speed", unit: "× profiled", least: 0.1, most: 20, log: true },
    {
      name: "batch_size",
      label: "batch size of a worker",
      least: 1,
      most: 64 * own,
      log: true,
      whole: true,
    },
    {
      name: "most_workers",
      label: "curve up to",
      unit: "workers",
      least: 1,
      most: Math.min(network.most_workers, 128),
      limit: network.most_workers,
      whole: true,
    },
  ].filter((spec) => spec.name !== "bandwidth" || network.transferred.some((size) => size > 0));
}

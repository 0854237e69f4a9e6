"""Measurements from logs of training: TorchTitan's steps, Lightning's metrics.csv, the summary of HF's Trainer."""

from __future__ import annotations

import csv
import os
import re
import statistics

from ..base.checks import MOST_EXAMPLES, require_count
from ..base.errors import DataError
from ..base.files import number_in, read_bytes
from .job import MOST_WORKERS
from .measurements import Measurement

_COLOUR = re.compile(r"\x1b\[[\d;]*m")
#: A step, but not one of a validation; the last rate of a line is that of one device.
_TITAN = re.compile(r"(?<![a-z] )\bstep: *(\d+) .*\b(?:per_device_)?tps: *([\d,]+)")
_TRAINER = r"{}['\"]?\s*[:=]\s*([\d.]+)"
MEDIAN = 1.2533 * 1.4826  # a median's standard error in medians of absolute deviations, of n^-1/2


def read_log(
    path: str | os.PathLike[str], *, gpus: int, nodes: int | None = None, batch_size: int | None = None
) -> Measurement:
    """Read the rate of a training job from its log.

    Of TorchTitan, the median of the logged steps without their first tenth, in tokens; so, too, of the rates of a
    device that Lightning's ThroughputMonitor logs to the metrics.csv of a CSVLogger, in batches, or in samples with a
    batch size. Of Hugging Face's Trainer the summary at its end, ``train_steps_per_second``, start-up included.
    A log with none of these is a `DataError`.

    Parameters
    ----------
    path : str or PathLike
    gpus : int
        Of all nodes together.
    nodes : int, optional
    batch_size : int, optional
        Per GPU and step: tokens of a TorchTitan log (local batch size times sequence length; without it, a step is one
        token), and examples of the others, with those of accumulation (a summary then needs no rounded steps).
    """
    require_count(gpus, "gpus", most=MOST_WORKERS, error=DataError)
    if batch_size is not None:
        require_count(batch_size, "batch_size", most=MOST_EXAMPLES, error=DataError)
    text = _COLOUR.sub("", read_bytes(path).decode(errors="replace"))
    steps: dict[int, list[float]] = {}
    for step, rate in _TITAN.findall(text):  # of several ranks
        steps.setdefault(int(step), []).append(float(rate.replace(",", "")))
    titan = [statistics.fmean(ranks) for _, ranks in sorted(steps.items())]
    if rates := titan or _lightning(text, "samples" if batch_size else "batches"):
        rates = rates[-(-len(rates) // 10) if len(rates) > 1 else 0 :]
        middle = statistics.median(rates)
        error = MEDIAN * statistics.median(abs(rate - middle) for rate in rates) / len(rates) ** 0.5
        batch_size = batch_size or 1 if titan else batch_size
        scale, unit = gpus / (batch_size or 1), "tokens" if titan else "examples"
    else:
        samples, rounds = (
            re.findall(_TRAINER.format(f"train_{what}_per_second"), text)[-1:] for what in ("samples", "steps")
        )
        if not (samples and rounds):
            raise DataError(
                f"{path}: no steps of TorchTitan (step: 10 ... tps: 1,234), no column train|device/batches_per_sec of "
                "Lightning's ThroughputMonitor, and no summary of Hugging Face's Trainer (train_samples_per_second and "
                "train_steps_per_second); write its numbers into a table"
            )
        middle, error = float((samples if batch_size else rounds)[0]), 0.0
        scale, unit = 1 / batch_size if batch_size else gpus, "examples"
    if middle <= 0:
        raise DataError(f"{path}: its rate is 0, perhaps rounded; give batch_size, or write its numbers into a table")
    return Measurement(
        workers=gpus, nodes=nodes, steps_per_second=middle * scale, batch_size=batch_size, unit=unit,
        standard_error=error * scale or None,
    )  # fmt: skip


def _lightning(text: str, what: str) -> list[float]:
    """Rates of one device in a metrics.csv, of rows that have one."""
    lines = text.splitlines()
    names = lines[0].split(",") if lines else []
    column = next((name for name in names if re.fullmatch(rf"(train\|)?device/{what}_per_sec", name)), None)
    cells = [number_in(row[column] or "") for row in csv.DictReader(lines)] if column else []
    return [rate for rate in cells if not isinstance(rate, str)]

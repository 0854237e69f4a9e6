"""Reproduce the artifact's published figures from its files: ``python -m validation.pollux --help``."""

from __future__ import annotations

import click

from queuemodel.cli import main
from queuemodel.cli.options import COUNT, format_option
from queuemodel.cli.schedule import POLICY_HELP, print_schedules

from .replay import CURVES, read_jobs, replay


@click.command("pollux")
@click.argument("workload", type=click.Path())
@click.option("--traces", type=click.Path(), required=True, help="The artifact's folder of measurements.")
@click.option("--policy", "policies", multiple=True, required=True, help=POLICY_HELP)
@click.option("--curves", type=click.Choice(list(CURVES)), default="true", show_default=True,
              help="What policies know: the measured curves, or those predicted from one and two GPUs.")  # fmt: skip
@click.option("--nodes", type=COUNT, default=64, show_default=True, help="GPUs, four per machine.")
@format_option
@click.option("--records", is_flag=True, help="Also one record per job (json), or only those (csv).")
def pollux(
    workload: str, traces: str, policies: tuple[str, ...], curves: str, nodes: int, output_format: str, records: bool
) -> None:
    """Run WORKLOAD in the conventions of the Pollux artifact's simulator.

    "tiresias" and "optimus" are the artifact's own policies, all other names those of "queuemodel schedule".

    \b
    Example:
      python -m validation.pollux workload-6.csv --traces traces --policy tiresias --policy rank-priced
    """
    if curves != "true" and not set(policies) - {"tiresias", "optimus"}:
        raise click.UsageError("--curves predicted does not apply: tiresias and optimus look at no curve of ours")
    results = {
        policy: replay(read_jobs(workload, traces), policy, gpus=nodes, curves=curves)
        for policy in dict.fromkeys(policies)
    }
    print_schedules(results, nodes=nodes, output_format=output_format, records=records)


if __name__ == "__main__":
    main(command=pollux)

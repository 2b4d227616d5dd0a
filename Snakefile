from pathlib import Path

from snakemake.utils import min_version

from headsweep import __version__
from headsweep.workflow import interrupts

min_version("9.20")
interrupts.end_in_a_line()

# The demo is the default; its keys are not merged into other configs.
if not config:

    configfile: f"{workflow.current_basedir}/config/demo.yaml"


# Used with --sdm apptainer: an image of one's own, or the release's (envs/README.md), beside this
# Snakefile. One in the folder of the run may be a stranger's.
OWN_IMAGE = Path(workflow.basedir, "headsweep.sif")
RELEASED_IMAGE = OWN_IMAGE.with_name(f"headsweep_{__version__}.sif")


container: str(OWN_IMAGE if OWN_IMAGE.exists() else RELEASED_IMAGE)


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/models.smk"
include: "workflow/rules/benchmarks.smk"
include: "workflow/rules/sweep.smk"
include: "workflow/rules/map.smk"
include: "workflow/rules/sprint.smk"
include: "workflow/rules/frontier.smk"
include: "workflow/rules/compression.smk"
include: "workflow/rules/figures.smk"


rule all:
    default_target: True
    input:
        of_run(paths.REPORT),


rule printed:
    input:
        RULES.printed,


rule answers:
    input:
        RULES.answers_of_all(),


rule fetch:
    input:
        RULES.fetched,

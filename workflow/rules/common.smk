# What all rules use. The whole config, and its inputs as far as possible, are checked before the
# first job.
#
# `ancient(...)` marks files of the store that make nothing anew when they are newer than the outputs:
# they are named by their content, as are the outputs, and a copy of the store may date both as it
# likes.
#
# `paths.NAME` is a path with wildcards, written out in src/headsweep/files/paths.py; `tables.NAME` is a
# Parquet table, declared with its path and its columns in src/headsweep/files/tables.py. `of_run(...)` is
# either's path in this run's folder. `RULES.name` is a function in src/headsweep/workflow/rules.py:
# it returns the files that the config asks for. `headsweep job NAME` calls the function NAME in
# src/headsweep/workflow/jobs.py.
import gc
from pathlib import Path

from headsweep import choices
from headsweep.files import paths, tables
from headsweep.results import paper_differences, published
from headsweep.answers.client import begin_run, end_run
from headsweep.store.hard_links import link_finished, unlink_finished
from headsweep.results import exhibits
from headsweep.store.chosen_heads import basis
from headsweep.config.titles import title, titles
from headsweep.workflow import session
from headsweep.workflow.rules import Rules, shown

# Planning makes many objects that stay. With the default threshold of 700, garbage collection takes
# a seventh of the time.
gc.set_threshold(100_000)

CORES = session.cores(workflow)
STORE = session.checked(config, workflow.configfiles, look=workflow.is_main_process)
CONFIG = STORE.config
RULES = Rules(STORE, CORES, workflow.parent_groupids, local=session.runs_here(workflow))
of_run = STORE.fill
shell.prefix(session.shell_prefix(CONFIG.run))
session.plan_what_is_missing()


onstart:
    begin_run()
    session.begin(RULES, workflow, logger)
    for table in session.planned_answers(workflow):
        link_finished(table)


onsuccess:
    end_run()
    for batch in RULES.batches.values():
        unlink_finished(batch)
    session.tell_findings(RULES, workflow, logger)


onerror:
    end_run()


session.keep_handlers(workflow)

# Jobs that many others wait for start first.
PRIORITY = {"inputs": 3, "answers": 2, "teachers": 1}


wildcard_constraints:
    **RULES.constraints,

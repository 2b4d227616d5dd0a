"""What the help of commands says below their options."""

from headsweep.cli import own_prompt

SWEEP = f"""\
examples:
  headsweep sweep --model Qwen/Qwen2.5-Math-1.5B-Instruct --benchmark math500 \\
      --layers 5,15
  headsweep sweep --model ./my-llama --benchmark ./mine.csv --layers all \\
      --question-column q --answer-column a --grader numeric --out my-sweep

The same command continues where it was stopped. This makes all figures and the
report, and generates nothing twice:
  headsweep run OUT/results/sweep/config.json --directory OUT

{own_prompt.ABOUT}"""
MAP = f"""\
examples:
  headsweep map --model ./my-llama --benchmark ./mine.csv --question-column q \\
      --answer-column a --out my-map
  headsweep map --model ./my-llama --benchmark math500 --n 50

{own_prompt.ABOUT}"""
TRY = f"""\
examples:
  headsweep try ./my-llama ./mine.csv --question-column q --answer-column a
  headsweep try ./my-llama math500

{own_prompt.ABOUT}"""
STORE = """\
The store, results/store, is shared by all configs. Each line names a kind of
file, its key, and the configs that need it: those of the runs in results/, and
those that you name.

--prune lists what no run and no named config needs, asks, and moves it to
results/store/.trash; --empty-trash removes it for good. `mv` moves a file and
its record (FILE.run.json) back to the same path in results/store. Files of
unknown kinds stay, and so do answers that a known config could take over: those
to a smaller draw from its split. Where other folders share the store by a link,
their runs have to be named.
"""

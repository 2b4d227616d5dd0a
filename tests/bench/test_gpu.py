"""The GPU script, rehearsed on the CPU, where torch, transformers and numpy are all there is."""

import re
import subprocess
import sys

import pytest

_WITHOUT = """
import importlib.util, sys
lacking = {"pydantic", "datasets", "snakemake", "pandas", "pyarrow", "jaxtyping"}
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in lacking:
            raise ModuleNotFoundError(name)
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *of: None if name in lacking else found(name, *of)
sys.meta_path.insert(0, Refuse())
from headroom.bench.gpu import main
main([sys.argv[1]])
"""


@pytest.mark.parametrize(
    ("stage", "told"),
    [
        ("smoke", ["TFLOP/s", "GB/s", "generate, batch 16"]),
        ("exact", ["'differing': 0", "torch.bfloat16", "'path': 'dense'"]),
        ("7b", ["engine, decoding", "engine, sweep, 90% forced"]),
    ],
)
def test_each_stage_runs_with_few_packages(stage, told):
    command = [sys.executable, "-c", _WITHOUT, stage]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr[-2000:]
    assert all(words in found.stdout for words in told), found.stdout
    assert "falls" not in found.stdout
    forced = re.findall(r"sweep, (\d+)% forced: .* (\d+)% accepted", found.stdout)
    assert forced == [] if stage == "exact" else len(forced) == 4
    assert all(abs(int(found) - int(asked)) <= 13 for asked, found in forced), forced

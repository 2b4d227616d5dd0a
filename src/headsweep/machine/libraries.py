"""What libraries read from the environment, most of it when they are imported."""

import os


def prepare_command() -> None:
    """State it for a command, before torch is imported."""
    os.environ.setdefault("TQDM_DISABLE", "1")  # commands log their own progress
    # Threads of torch that wait for each other sleep: where others work, too, spinning takes ten
    # times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def prepare_job(*, online: bool) -> None:
    """State it for a job of the workflow, before transformers is imported."""
    # Missing weights, of which transformers warns, are checked after loading.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    if not online:
        os.environ["HF_HUB_OFFLINE"] = "1"
        os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"  # loading is quick

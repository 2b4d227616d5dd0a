"""An untrained reasoner in the hub's format, with weights so large that every head counts."""

import torch

from headroom.benchmarks.generated import corpus
from headroom.reasoner.training import Settings, new_model, train_tokenizer

SETTINGS = Settings(
    hidden=48, layers=3, query_heads=6, kv_heads=2, head_dim=32, intermediate=56, vocabulary=320
)


def make(settings=SETTINGS, scale=1.0):
    texts = (text for problem in corpus(200, seed=1) for text in problem[:2])
    tokenizer = train_tokenizer(texts, settings.vocabulary)
    model = new_model(settings, tokenizer)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.25 * scale, generator=generator)
    return model.eval(), tokenizer


def save(folder, settings=SETTINGS, scale=1.0):
    for part in make(settings, scale):
        part.save_pretrained(folder)
    return folder

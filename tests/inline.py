"""Answers without an engine process: what served answers are compared with."""

from batch_of import batch_of
from headsweep.answers import client, worker
from headsweep.answers.work import Work
from headsweep.store import journal


def run(config, model, decoding, questions, variant):
    work = Work(batch_of(config, model, decoding, questions))
    work.take_over(variant)
    requests = [(variant, key) for key in work.unanswered(variant)]
    if requests:
        section = config.models[model]
        loaded = worker.load(section, work.batch.keys.model, section.device)
        answering = worker.Worker(loaded, section.batch_size)
        for _, answer in answering.run(work.unit(requests, work.base())):
            journal.append(work.journal(variant), [answer])
    client.run(work.batch, variant)

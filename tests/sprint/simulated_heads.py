"""Simulated answers, and an accuracy matrix of clusters of questions with heads of their own."""

from typing import NamedTuple

import numpy as np

from headsweep.config import Selector
from headsweep.experiments.sprint.pass_at_n import Answers


def options(**keys):
    needed = {"model": "m", "train": "a", "test": "b", "layers": "all", "embedder": "e"}
    return Selector(**needed | keys)


def of_groups(group, tokens):
    """Answers of which group 0 is right and -1 is none, at costs that differ by column."""
    shared = np.broadcast_to(np.arange(group.shape[1]) * 3 % 4 / 4, group.shape)
    return Answers(group == 0, group, tokens, shared, 1 - shared)


def made(questions, pool, seed=0):
    draw = np.random.default_rng(seed)
    group = draw.integers(-1, 3, size=(questions, pool))
    return of_groups(group, draw.integers(10, 90, size=group.shape))


class Simulation(NamedTuple):
    embeddings: np.ndarray  # float32 [questions, embedding_dim]
    correct: np.ndarray  # bool [questions, pool]


def simulate(questions, pool=24, clusters=6, embedding_dim=32, revealed=True, seed=0):
    """Head j knows cluster j mod clusters: it solves 85% of that cluster and 15% of the others.

    One question in ten is solved by no head. If `revealed`, an embedding is its cluster's centre
    plus noise; else it is noise alone.
    """
    centres = np.random.default_rng(99).normal(size=(clusters, embedding_dim))
    draw = np.random.default_rng(seed)
    cluster = draw.integers(clusters, size=questions)
    knows = np.arange(pool)[None, :] % clusters == cluster[:, None]
    correct = draw.random((questions, pool)) < np.where(knows, 0.85, 0.15)
    correct[draw.random(questions) < 0.1] = False
    noise = draw.normal(size=(questions, embedding_dim))
    embeddings = 2 * centres[cluster] * revealed + noise
    # Embeddings of real encoders have a mean far from 0 and features of unequal size.
    embeddings = embeddings * np.linspace(0.1, 3, embedding_dim) + 5
    return Simulation(embeddings.astype(np.float32), correct)

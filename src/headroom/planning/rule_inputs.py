# What the rules read: input functions and parameters, stage by stage.


# benchmarks.smk


def drawn_from(wildcards):
    name = KEYS["questions"][wildcards.questions]
    embedder = CONFIG.questions[name].embedder
    inputs = {"source": paths.SOURCE.format(source=source_key(CONFIG, name))}
    if embedder:
        inputs["embedder"] = paths.EMBEDDER.format(
            embedder=key(CONFIG, "embedders", embedder)
        )
    return inputs


def embedded_model(wildcards):
    model = CONFIG.embedders[KEYS["embedders"][wildcards.embedder]].model
    return [paths.MODEL.format(model=key(CONFIG, "models", model))] if model else []


# sweep.smk


def batch(wildcards):
    return BATCH_OF[wildcards.model, wildcards.decoding, wildcards.questions]


def answers(wildcards):
    return batch(wildcards).answers(CONFIG)


def layer(wildcards):
    """Name the group of jobs that share an allocation of SLURM, and with it a loaded model."""
    number = Variant.parse(wildcards.variant).layer
    group = f"{wildcards.model}/{wildcards.decoding}/{wildcards.questions}/{number}"
    workflow.parent_groupids[group] = (
        "layer"  # what the profile's group-components names
    )
    return group


def judges(wildcards):
    """Return how many cores grading is worth: a job that wants all waits until all are free."""
    return min(CORES or 1, 1 + cost(CONFIG, batch(wildcards)).answers // 10_000)


def gpus(wildcards):
    return request(CONFIG, batch(wildcards)).gpus


def megabytes(wildcards, attempt):
    return attempt * request(CONFIG, batch(wildcards)).megabytes


def minutes(wildcards, attempt):
    return attempt * request(CONFIG, batch(wildcards)).minutes


def planned(job):
    """Return what the time left is told from, see snakemake_logger_plugin_headroom.pace.Planned."""
    name, wildcards = job.rule.name, job.wildcards
    unit, seconds = str(job.jobid), 0.0
    if name == "generate":
        unit = str(batch(wildcards).wildcards(CONFIG))
        seconds = generating(CONFIG, batch(wildcards))
    elif name == "teacher" or name == "compress" and arm(wildcards).settings.rounds:
        seconds = training_costs.training(CONFIG, *trained(wildcards))
    after = [other.jobid for other in workflow.dag.dependencies[job]]
    return name, unit, seconds, after


def compared(wildcards):
    comparison = CONFIG.comparisons[wildcards.comparison]
    keys = {
        "model": key(CONFIG, "models", comparison.model),
        "questions": key(CONFIG, "questions", comparison.questions),
        "variant": "base",
    }
    return [
        paths.QUESTIONS.format(**keys),
        *(
            paths.ANSWERS.format(decoding=key(CONFIG, "decodings", decoding), **keys)
            for decoding in comparison.decodings
        ),
    ]


# sprint.smk


def selector(wildcards):
    return CONFIG.selectors[wildcards.selector]


def selector_settings(wildcards):
    return digest(selector(wildcards).model_dump(mode="json"))


def embeddings(name, questions):
    return paths.EMBEDDINGS.format(
        embedder=key(CONFIG, "embedders", name),
        questions=key(CONFIG, "questions", questions),
    )


def evaluated(wildcards):
    chosen = selector(wildcards)
    return {
        "train": accuracy(chosen.model, chosen.decoding, chosen.train),
        "test": accuracy(chosen.model, chosen.decoding, chosen.test),
        "graded": graded(chosen.model, chosen.decoding, chosen.test),
        "sampled": [
            graded(chosen.model, decoding, chosen.test) for decoding in chosen.sampling
        ],
    }


def weighed(wildcards):
    chosen = selector(wildcards)
    return {
        "train": accuracy(chosen.model, chosen.decoding, chosen.train),
        "test": accuracy(chosen.model, chosen.decoding, chosen.test),
        "embeddings": embeddings(chosen.embedder, chosen.train),
    }


def voted(wildcards):
    chosen = selector(wildcards)
    return [
        graded(chosen.model, chosen.decoding, chosen.train),
        graded(chosen.model, chosen.decoding, chosen.test),
        *(graded(chosen.model, decoding, chosen.test) for decoding in chosen.sampling),
    ]


# compression.smk


def taught(wildcards):
    inputs = {"data": paths.PROBLEMS}
    encoder = ENCODER_OF[wildcards.solver]
    if encoder:
        inputs["encoder"] = paths.ENCODER.format(encoder=encoder)
    return inputs


def arm(wildcards):
    return ARMS[wildcards.subject, wildcards.data, wildcards.arm]


def compressed(wildcards):
    chosen = arm(wildcards)
    inputs = tested(wildcards)
    if chosen.study.model:
        answers = own_answers(CONFIG, chosen.study, chosen.every_head(CONFIG))
        return {**inputs, "answers": list(answers.values())}
    inputs["teacher"] = chosen.file(paths.TEACHER, wildcards.seed)
    layout = chosen.layout()
    if layout:
        inputs["layout"] = layout.file(paths.HISTORY, wildcards.seed)
    return inputs


def trained(wildcards):
    """Return the compression that a job is of, and the settings of its arm where it has one."""
    if hasattr(wildcards, "compression"):
        return [CONFIG.compressions[wildcards.compression]]
    if hasattr(wildcards, "arm"):
        return [arm(wildcards).study, arm(wildcards).settings]
    subject = (wildcards.solver, wildcards.data)
    return [next(a.study for a in ARMS.values() if (a.subject, a.data) == subject)]


def training_request(wildcards):
    """Return what a job of training, compressing or testing asks a cluster for."""
    return training_costs.request(CONFIG, *trained(wildcards))


def training_gpus(wildcards):
    return training_request(wildcards).gpus


def training_megabytes(wildcards, attempt):
    return attempt * training_request(wildcards).megabytes


def training_minutes(wildcards, attempt):
    return attempt * training_request(wildcards).minutes


def tested(wildcards):
    study = arm(wildcards).study
    if not study.model:
        return {"data": paths.PROBLEMS}
    return {
        "model": paths.MODEL.format(model=key(CONFIG, "models", study.model)),
        "questions": [
            paths.QUESTIONS.format(questions=key(CONFIG, "questions", name))
            for name in (study.train, study.test)
        ],
    }


def quantised(wildcards):
    return {**tested(wildcards), "history": paths.HISTORY}


def gathered(wildcards):
    study = CONFIG.compressions[wildcards.compression]
    runs = [
        (arm, seed)
        for arm in arms(CONFIG, wildcards.compression)
        for seed in study.seeds
    ]
    return {
        "outcomes": [arm.file(paths.OUTCOMES, seed) for arm, seed in runs],
        "histories": [arm.file(paths.HISTORY, seed) for arm, seed in runs],
        "int8": [
            arm.file(paths.INT8_OUTCOMES, seed)
            for arm, seed in runs
            if arm.name in study.int8
        ],
    }


def measured(wildcards):
    study = CONFIG.compressions[wildcards.compression]
    return [
        arm.file(paths.HISTORY, study.seeds[0])
        for arm in arms(CONFIG, wildcards.compression)
        if study.measured is None or arm.name in study.measured
    ]


def study_settings(wildcards):
    return digest(CONFIG.compressions[wildcards.compression].model_dump(mode="json"))


# figures.smk


published_heads = [
    str(PUBLISHED / name)
    for name in (published.HEAD_PRUNING, published.MISSING, published.FIGURE_5)
]

published_cuts = [
    str(PUBLISHED / name)
    for name in (published.COMPRESSION, published.COMPRESSION_SIZES)
]

published_claims = published_cuts + [
    str(PUBLISHED / name)
    for name in (
        published.SPRINT_CLAIMS,
        published.COMPRESSION_CLAIMS,
        published.COMPRESSION_FACTORS,
        published.COMPRESSION_STRATEGIES,
    )
]


def published_folder(wildcards, input):
    return Path(input.published[0]).parent


published_compression = published_cuts + [
    str(PUBLISHED / name)
    for name in (published.COMPRESSION_FACTORS, published.COMPRESSION_STRATEGIES)
]

EXHIBITS = (
    "table1",
    "table2",
    "table3a",
    "table3b",
    "table4",
    "knee",
    "quantisation",
    "cost",
)
STUDY_FIGURES = (paths.PARETO, paths.IMPORTANCE, paths.LOSSES, paths.ALPHA)


def study_files(wildcards):
    return [
        of_run(template).format(compression=wildcards.compression)
        for template in (paths.STUDY_OUTCOMES, paths.HISTORIES, paths.MEASUREMENTS)
    ]


def studied(wildcards):
    return [
        of_run(template).format(compression=name)
        for name in CONFIG.compressions
        for template in (paths.STUDY_OUTCOMES, paths.HISTORIES, paths.MEASUREMENTS)
    ]


def all_study_settings(wildcards):
    return digest(
        {name: s.model_dump(mode="json") for name, s in CONFIG.compressions.items()}
    )


def judged(wildcards):
    """Return the files of this run that claims are judged from."""
    files = []
    for name, sweep in CONFIG.sweeps.items():
        files.append(accuracy(sweep.model, sweep.decoding, sweep.questions))
        files.append(
            of_run(paths.CONTROLS).format(sweep=name, table="gains", suffix="csv")
        )
    for name in CONFIG.selectors:
        files.append(of_run(paths.CURVES).format(selector=name))
        files.append(of_run(paths.PAIRED).format(selector=name))
    return files + studied(wildcards)


def sweep_table(wildcards):
    sweep = CONFIG.sweeps[wildcards.sweep]
    return accuracy(sweep.model, sweep.decoding, sweep.questions)


def sweep_tables(wildcards):
    return [accuracy(s.model, s.decoding, s.questions) for s in CONFIG.sweeps.values()]


def sweep_settings(wildcards):
    return digest(CONFIG.sweeps[wildcards.sweep].model_dump(mode="json"))


def all_sweep_settings(wildcards):
    return digest(
        {name: s.model_dump(mode="json") for name, s in CONFIG.sweeps.items()}
    )


def sweep_figures(name):
    """Return the templates of a sweep's figures; only the suffix is left open."""
    layers = sorted({variant.layer for variant in pool(CONFIG, CONFIG.sweeps[name])})
    heatmaps = [paths.HEATMAP.replace("{layer}", f"{layer:02d}") for layer in layers]
    templates = (paths.FOREST, paths.AGREEMENT, paths.COMPONENTS, paths.COST, *heatmaps)
    return [of_run(template).replace("{sweep}", name) for template in templates]


def drawn_for_sweep(name):
    """Return what the figures of a sweep are drawn from."""
    sweep = CONFIG.sweeps[name]
    controls = of_run(paths.CONTROLS).replace("{sweep}", name)
    return [
        accuracy(sweep.model, sweep.decoding, sweep.questions),
        *(controls.format(table=table, suffix="csv") for table in ("heads", "spread")),
        *find_batch(CONFIG, sweep.model, sweep.decoding, sweep.questions).answers(
            CONFIG
        ),
    ]


def drawn_for_selector(wildcards):
    """Return what the figures of a selector are drawn from."""
    chosen = selector(wildcards)
    return {
        "curves": of_run(paths.CURVES),
        "paired": of_run(paths.PAIRED),
        "points": of_run(paths.POINTS),
        "accuracy": accuracy(chosen.model, chosen.decoding, chosen.test),
    }


def png(template):
    """Return the figure that the workflow's report shows."""
    return of_run(template).replace("{suffix}", "png")


def beside(template, *suffixes):
    """Return the files that a figure's job makes beside its PNG, or those with given suffixes."""
    suffixes = suffixes or ("pdf", "svg", "dark.svg", "csv", "json")
    return [of_run(template).replace("{suffix}", suffix) for suffix in suffixes]


def sweep_graded(wildcards):
    sweep = CONFIG.sweeps[wildcards.sweep]
    return graded(sweep.model, sweep.decoding, sweep.questions)


def sweep_activations(wildcards):
    sweep = CONFIG.sweeps[wildcards.sweep]
    batch = find_batch(CONFIG, sweep.model, sweep.decoding, sweep.questions)
    return paths.ACTIVATIONS.format(**batch.wildcards(CONFIG))


def reported(wildcards):
    """Return everything that the report of this run shows."""
    files = beside(paths.AUDIT, "png", "json")
    files += [
        of_run(paths.AUDIT_TABLE).format(paper=paper, suffix="csv")
        for paper in ("sprint", "compression")
    ]
    files += beside(paths.CLAIMS, "csv", "md")
    if CONFIG.sweeps:
        files += beside(paths.VIOLINS, "png", "json") + beside(
            paths.LEVELS, "png", "json"
        )
    for name, sweep in CONFIG.sweeps.items():
        files.append(accuracy(sweep.model, sweep.decoding, sweep.questions))
        files.append(of_run(paths.TABLE).format(sweep=name, suffix="md"))
        files += [
            of_run(paths.CONTROLS).format(sweep=name, table=table, suffix="csv")
            for table in ("gains", "heads", "spread", "failures")
        ]
        for template in sweep_figures(name):
            files += beside(template, "png", "json")
    for name in CONFIG.selectors:
        figures = [
            *beside(paths.PASS_AT_N, "png", "json"),
            *beside(paths.SPACE, "png", "json"),
        ]
        results = (paths.CHOICE, paths.CURVES, paths.PAIRED, paths.SENSITIVITY)
        results += (paths.SELECTOR_CARD,)
        files += [file.format(selector=name) for file in figures]
        files += [of_run(template).format(selector=name) for template in results]
        files += [
            of_run(template).format(selector=name, suffix="md")
            for template in (paths.EMBEDDING_VALUE, paths.DIVERSITY, paths.CHOOSING)
        ]
    for name in CONFIG.comparisons:
        files.append(of_run(paths.COMPARISON).format(comparison=name, suffix="md"))
    if CONFIG.compressions:
        files += studied(wildcards)
        files += [
            of_run(paths.COMPRESSION_TABLE).format(exhibit=exhibit, suffix=suffix)
            for exhibit in EXHIBITS
            for suffix in ("csv", "md")
        ]
    for name in CONFIG.compressions:
        for template in STUDY_FIGURES:
            files += [
                file.format(compression=name)
                for file in beside(template, "png", "json")
            ]
    return files

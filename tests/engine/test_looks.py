"""A look inside a head: transformers' own attention, and its direct effect by brute force."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import tiny_models
import torch
from tiny_models import DECODERS, QUERY_HEADS, VOCABULARY, Architecture, named

from headsweep.answers import inside_heads
from headsweep.answers.inside_heads import END, Site, look_inside
from headsweep.errors import ModelError
from headsweep.models.direct_path import DirectPath, FrozenNorm
from headsweep.models.geometry import find_heads
from headsweep.variants import Variant

GRANITE = {"residual_multiplier": 0.22, "logits_scaling": 3.5, "embedding_multiplier": 5.0}
TESTED = [*DECODERS, replace(named("Granite"), settings=named("Granite").settings | GRANITE)]
OFFSET = ("Gemma", "Gemma2", "Gemma3Text")  # their norms multiply by 1 + weight
ENDS = (2, 5)


def built(architecture):
    """Return a tiny model whose norms and biases count, too."""
    model = tiny_models.build(architecture, "eager")
    draw = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter += 0.3 * torch.randn(parameter.shape, generator=draw)
    return model


def loaded(model):
    return SimpleNamespace(
        model=model,
        geometry=find_heads(model),
        device=torch.device("cpu"),
        pad_token_id=0,
        eos_token_ids=ENDS,
    )


def drawn():
    """Two prompts and answers, and sites in unlike layers; the last is at the answer's end."""
    draw = torch.Generator().manual_seed(1)
    lengths = {"a": (3, 4), "b": (5, 9)}
    prompts, answers = {}, {}
    for question, (first, second) in lengths.items():
        ids = torch.randint(3, VOCABULARY, (first + second,), generator=draw).tolist()
        prompts[question], answers[question] = ids[:first], ids[first:]
    sites = [
        Site("b", Variant(1, 4), 2, answers["b"][2], 7),
        Site("a", Variant(3, 0), 0, answers["a"][0], 11),
        Site("b", Variant(0, 5), 8, answers["b"][8], END),
        Site("b", Variant(3, 2), 5, answers["b"][5], 90),
        Site("a", Variant(1, 1), 4, END, 19),
    ]
    return prompts, answers, sites


def frozen(name, norm, part, state):
    """Return what a part of a state becomes in a norm with the scale of the state."""
    part, state = part.double(), state.double()
    weight = norm.weight.double() + (1 if name in OFFSET else 0)
    if isinstance(norm, torch.nn.LayerNorm) or name == "Cohere":
        part, state = part - part.mean(-1, keepdim=True), state - state.mean()
    epsilon = getattr(norm, "eps", None) or getattr(norm, "variance_epsilon", None)
    return part * weight / (state.square().mean() + epsilon).sqrt()


def brute_force(architecture, model, geometry, ids, layer):
    """Return, at the last of some tokens: logits' direct changes by each head of a layer [heads,
    vocabulary], the last state's logits, and the layer's attention [heads, tokens]."""
    name, config = architecture.name, model.config
    seen = {}
    projection = geometry.output_projection(model, layer)
    norms = [one for one in model.base_model.modules() if "orm" in type(one).__name__]
    norms += [one for one in model.base_model.modules() if isinstance(one, torch.nn.LayerNorm)]
    hooks = [
        module.register_forward_hook(
            lambda module, given, result: seen.update({module: (given[0], result)})
        )
        for module in {projection, *norms}
    ]
    with torch.no_grad():
        output = model(torch.tensor([ids]), output_attentions=True, use_cache=False)
        for hook in hooks:
            hook.remove()
        joined, projected = (state[0, -1] for state in seen[projection])
        only = torch.zeros(QUERY_HEADS, len(joined))
        for head in range(QUERY_HEADS):
            columns = geometry.layer(layer).columns(head)
            only[head, columns] = joined[columns]
        written = (projection(only[None])[0] - projection(torch.zeros_like(only)[None])[0]).double()
        if name in ("Gemma2", "Gemma3Text", "Olmo2"):
            block = model.get_submodule(geometry.layer(layer).block)
            written = frozen(name, block.post_attention_layernorm, written, projected)
        written *= getattr(config, "residual_multiplier", 1.0)
        final = [*seen][-1]  # the last norm of all that is reached
        written = frozen(name, final, written, seen[final][0][0, -1])
        scale = getattr(config, "logit_scale", 1.0) if name == "Cohere" else 1.0
        scale /= getattr(config, "logits_scaling", 1.0)
        effects = written @ model.get_output_embeddings().weight.double().T * scale
    return effects, output.logits[0, -1], output.attentions[layer][0, :, -1]


@pytest.mark.parametrize("architecture", TESTED, ids=str)
def test_a_look_is_transformers_attention_and_the_direct_effect_by_brute_force(architecture):
    model = built(architecture)
    geometry = find_heads(model)
    prompts, answers, sites = drawn()
    found = {look.site: look for look in look_inside(loaded(model), prompts, answers, sites)}
    assert found.keys() == {*sites}
    for site, look in found.items():
        ids = [*prompts[site.question], *answers[site.question][: site.shared]]
        layer, head = site.head.layer, site.head.head
        effects, logits, attention = brute_force(architecture, model, geometry, ids, layer)
        likeliest = ENDS[logits[[*ENDS]].argmax()]
        tokens = [likeliest if t == END else t for t in (site.base_token, site.own_token)]
        assert look.token_ids == tuple(tokens)
        wanted = effects[:, tokens]
        assert look.effects == pytest.approx(wanted[head].tolist(), abs=1e-4)
        assert wanted.abs().max() > 0.01  # there is something to miss
        sizes = (wanted[:, 0] - wanted[:, 1]).abs()
        assert look.rank == 1 + sizes.sort(descending=True).indices.tolist().index(head)
        weights = attention[head]
        assert look.weights == pytest.approx(weights[look.read].tolist(), abs=1e-4)
        most = weights.sort(descending=True).values[: len(look.weights)]
        assert look.weights == pytest.approx(most.tolist(), abs=1e-4)
        assert len(look.read) == min(6, int((weights > 0).sum()))


def test_rows_are_read_in_batches_and_each_alone_alike(monkeypatch):
    model = built(named("Qwen3"))
    prompts, answers, sites = drawn()
    together = list(look_inside(loaded(model), prompts, answers, sites))
    monkeypatch.setattr(inside_heads, "_CELLS", 1)
    alone = list(look_inside(loaded(model), prompts, answers, sites))
    assert [look.site.question for look in alone] == ["a", "a", "b", "b", "b"]
    for one in alone:
        (other,) = (look for look in together if look.site == one.site)
        assert one.read == other.read
        assert one.effects == pytest.approx(other.effects, abs=1e-5)


AFTER = Architecture("OPT", {"ffn_dim": 56, "word_embed_proj_dim": 48})
AFTER = replace(AFTER, settings=AFTER.settings | {"do_layer_norm_before": False})
NARROW = replace(named("OPT"), settings={"ffn_dim": 56, "word_embed_proj_dim": 40})


@pytest.mark.parametrize(
    ("architecture", "why"),
    [
        (AFTER, "does not just add the attention of layer 0 to the residual stream"),
        (NARROW, "has more than a norm between its last layer and its logits"),
    ],
)
def test_a_model_without_direct_effects_is_refused_with_the_reason(architecture, why):
    model = built(architecture)
    with pytest.raises(ModelError, match=f"OPTForCausalLM {why}, so that a head has no direct"):
        DirectPath(model, find_heads(model))


def test_attention_without_weights_is_refused():
    prompts, answers, sites = drawn()
    model = tiny_models.build(named("Qwen3"))  # sdpa
    with pytest.raises(ModelError, match="its attention returns no weights"):
        list(look_inside(loaded(model), prompts, answers, sites))


def test_what_bends_logits_and_says_nothing_is_refused():
    model = built(named("Gemma2"))
    DirectPath(model, find_heads(model))
    model.config.final_logit_softcapping = None
    forward = model.forward

    def bent(*arguments, **named_arguments):
        output = forward(*arguments, **named_arguments)
        output.logits = output.logits.tanh()
        return output

    model.forward = bent
    with pytest.raises(ModelError, match="bends its logits"):
        DirectPath(model, find_heads(model))


def test_a_module_that_is_no_norm_is_refused():
    states = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    FrozenNorm(torch.nn.LayerNorm(7), states)
    with pytest.raises(ModelError, match="Tanh is neither an RMS norm nor a layer norm"):
        FrozenNorm(torch.nn.Tanh(), states)

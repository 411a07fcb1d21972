"""Sockeye 3: its model, traced as its training command traces it, its loss, batches and optimizer.

Shapes: B sentences, S source positions, T target positions.
"""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.speed.job import Job
from benchmarks.speed.plan import BOS, Plan
from benchmarks.speed.turns import Missing, Turns


def train(job: Job, plan: Plan, turns: Turns) -> None:
    """The steps of its trainer for one process on a CPU."""
    try:
        import sockeye
        from sockeye import loss, model, optimizers, training
    except ImportError as error:
        raise Missing(f"Sockeye is not installed ({error})") from None
    torch.set_num_threads(job.threads)
    torch.manual_seed(job.seed)
    network = model.SockeyeModel(configuration(job, plan.vocabulary))
    network.apply(model.initialize_parameters)
    network.train()
    first = make_batch(plan, 0)
    traced = torch.jit.trace(  # type: ignore[no-untyped-call]
        network, (first.source, first.source_length, first.target, first.target_length), strict=False
    )
    both = training.ModelWithLoss(model=traced, losses=[loss.CrossEntropyLoss(label_smoothing=job.smoothing)])
    settings = optimizers.OptimizerConfig(name="adam", lr=job.peak, betas=job.betas, eps=job.epsilon)
    kind, options, zero = optimizers.get_optimizer(settings)
    optimizer = kind(network.parameters(), **options)
    parameters = sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)
    turns.ready(version=f"Sockeye {sockeye.__version__}", parameters=parameters)
    for number in range(len(plan)):
        batch = make_batch(plan, number)
        total, _, _ = both(batch.source, batch.source_length, batch.target, batch.target_length, batch.labels)
        total.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), job.clip)
        for group in optimizer.param_groups:
            group["lr"] = job.rate(number + 1)
        optimizer.step()
        optimizer.zero_grad(**zero)
        turns.done(total.item())


def make_batch(plan: Plan, number: int) -> Any:
    """Its own batch of source `(B, S, 1)` and target with the start symbol in front `(B, T + 1, 1)`."""
    from sockeye import data_io

    source, target = (torch.from_numpy(side).int() for side in plan.padded(number))
    target = torch.cat([torch.full_like(target[:, :1], BOS), target], 1)[..., None]
    read, label = data_io.create_target_and_shifted_label_sequences(target)
    return data_io.create_batch_from_parallel_sample(source[..., None], read, label)


def configuration(job: Job, vocabulary: int) -> Any:
    """Its defaults (norm before a sublayer, all embeddings tied) in the job's size."""
    from sockeye import constants, encoder, model, transformer

    size = job.transformer()
    longest = 512
    layers = transformer.TransformerConfig(
        model_size=size.width,
        attention_heads=size.heads,
        feed_forward_num_hidden=size.feedforward,
        act_type=constants.RELU,
        num_layers=size.layers,
        dropout_attention=0.0,
        dropout_act=job.dropout,
        dropout_prepost=job.dropout,
        positional_embedding_type=constants.FIXED_POSITIONAL_EMBEDDING,
        preprocess_sequence="n",
        postprocess_sequence="dr",
        max_seq_len_source=longest,
        max_seq_len_target=longest,
        depth_key_value=size.width,
    )
    embedding = encoder.EmbeddingConfig(vocab_size=vocabulary, num_embed=size.width, dropout=job.dropout)
    return model.ModelConfig(
        config_data=None,
        vocab_source_size=vocabulary,
        vocab_target_size=vocabulary,
        config_embed_source=embedding,
        config_embed_target=embedding,
        config_encoder=layers,
        config_decoder=layers,
    )

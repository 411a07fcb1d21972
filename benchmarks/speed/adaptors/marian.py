"""transformers' MarianMT in a plain loop: the way one trains it without further ado.

Shapes: B sentences, S source positions, T target positions, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.speed.job import Job
from benchmarks.speed.plan import BOS, EOS, PAD, Plan
from benchmarks.speed.turns import Missing, Turns
from sightline.performance import tune_allocator

IGNORED = -100


def train(job: Job, plan: Plan, turns: Turns) -> None:
    """AdamW as torch makes it by default, the gradient clipped, smoothed cross-entropy over the real tokens."""
    try:
        import transformers
    except ImportError:
        raise Missing("transformers is not installed: pip install 'sightline[benchmarks]'") from None
    if job.tuned and not tune_allocator():
        raise Missing("this platform's allocator cannot be tuned")
    torch.set_num_threads(job.threads)
    torch.manual_seed(job.seed)
    model = build(job, plan.vocabulary)
    model.train()
    if job.start:
        model.save_pretrained(job.start)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, betas=job.betas, eps=job.epsilon, weight_decay=0.0)
    parameters = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    turns.ready(version=f"transformers {transformers.__version__}", parameters=parameters)
    for number in range(len(plan)):
        for group in optimizer.param_groups:
            group["lr"] = job.rate(number + 1)
        source, target = (torch.from_numpy(side) for side in plan.padded(number))
        loss = smoothed_loss(model, source, target, job.smoothing)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), job.clip)
        optimizer.step()
        optimizer.zero_grad()
        turns.done(loss.item())


def build(job: Job, vocabulary: int) -> Any:
    """A model of the job's size with random weights: one table of embeddings for all three places."""
    from transformers import MarianConfig, MarianMTModel

    size = job.transformer()
    config = MarianConfig(
        vocab_size=vocabulary,
        d_model=size.width,
        encoder_layers=size.layers,
        decoder_layers=size.layers,
        encoder_ffn_dim=size.feedforward,
        decoder_ffn_dim=size.feedforward,
        encoder_attention_heads=size.heads,
        decoder_attention_heads=size.heads,
        activation_function="relu",
        dropout=job.dropout,
        activation_dropout=0.0,
        scale_embedding=True,
        share_encoder_decoder_embeddings=True,
        tie_word_embeddings=True,
        max_position_embeddings=512,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
    )
    return MarianMTModel(config)


def smoothed_loss(model: torch.nn.Module, source: Tensor, target: Tensor, smoothing: float) -> Tensor:
    """Source `(B, S)` and target `(B, T)` to the mean over real target tokens."""
    read = torch.cat([torch.full_like(target[:, :1], BOS), target[:, :-1]], 1)
    logits = model(input_ids=source, attention_mask=(source != PAD).long(), decoder_input_ids=read).logits
    labels = target.masked_fill(target == PAD, IGNORED)
    return F.cross_entropy(
        logits.view(-1, logits.size(-1)), labels.view(-1), ignore_index=IGNORED, label_smoothing=smoothing
    )

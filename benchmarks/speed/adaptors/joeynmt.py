"""JoeyNMT 2: its model, batches, loss and optimizer, in the order of steps of its training manager.

The manager itself wants data sets of text. Shapes: B sentences, S source positions, T target positions.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from benchmarks.speed.job import Job
from benchmarks.speed.plan import BOS, EOS, PAD, UNK, Plan
from benchmarks.speed.turns import Missing, Turns

# Where it has fixed places for them.
ITS_UNK, ITS_PAD = 0, 1


def train(job: Job, plan: Plan, turns: Turns) -> None:
    """Sums over tokens divided by their number, the gradient clipped, Adam."""
    try:
        import joeynmt
        from joeynmt.builders import build_gradient_clipper, build_optimizer
        from joeynmt.model import build_model
    except ImportError as error:
        raise Missing(f"JoeyNMT is not installed ({error})") from None
    torch.set_num_threads(job.threads)
    torch.manual_seed(job.seed)
    words = vocabulary(plan.vocabulary)
    model = build_model(configuration(job), words, words)
    model.loss_function = ("crossentropy", job.smoothing)
    model.train()
    settings = {"optimizer": "adam", "learning_rate": job.peak, "adam_betas": job.betas}
    optimizer = build_optimizer(settings, model.parameters())
    clip = build_gradient_clipper({"clip_grad_val": None, "clip_grad_norm": job.clip})
    parameters = sum(parameter.numel() for parameter in model.parameters())
    turns.ready(version=f"JoeyNMT {joeynmt.__version__}", parameters=parameters)
    for number in range(len(plan)):
        batch = make_batch(plan, number)
        batch.sort_by_src_length()
        total, _, _, correct = model(return_type="loss", **vars(batch))
        loss = batch.normalize(total, normalization="tokens", n_gpu=0, n_accumulation=1)
        loss.backward()
        correct.item()
        clip(parameters=model.parameters())
        for group in optimizer.param_groups:
            group["lr"] = job.rate(number + 1)
        optimizer.step()
        model.zero_grad()
        turns.done(loss.item())


def make_batch(plan: Plan, number: int) -> Any:
    """Source `(B, S)` and target with the start symbol in front `(B, T + 1)`, the special ids exchanged."""
    from joeynmt.batch import Batch

    exchanged = np.arange(plan.vocabulary)
    exchanged[PAD], exchanged[UNK] = ITS_PAD, ITS_UNK
    source, target = (torch.from_numpy(exchanged[side]) for side in plan.padded(number))
    target = torch.cat([torch.full_like(target[:, :1], BOS), target], 1)
    return Batch(
        src=source,
        src_length=(source != ITS_PAD).sum(1),
        src_prompt_mask=None,
        trg=target,
        trg_prompt_mask=None,
        indices=torch.arange(len(source)),
        device=torch.device("cpu"),
        pad_index=ITS_PAD,
        eos_index=EOS,
    )


def vocabulary(size: int) -> Any:
    """Made-up words behind the special ones."""
    from joeynmt.vocabulary import Vocabulary

    special = SimpleNamespace(
        unk_token="<unk>", pad_token="<pad>", bos_token="<s>", eos_token="</s>", sep_token=None, lang_tags=[],
        unk_id=ITS_UNK, pad_id=ITS_PAD, bos_id=BOS, eos_id=EOS, sep_id=None,
    )  # fmt: skip
    words = Vocabulary([f"word{number}" for number in range(4, size)], special)
    assert len(words) == size
    return words


def configuration(job: Job) -> dict[str, Any]:
    """The model section of its configuration."""
    if job.is_recurrent:
        recurrent = job.recurrent()
        embeddings = {"embedding_dim": recurrent.embedding, "scale": False, "dropout": job.dropout}
        part = {"type": "recurrent", "rnn_type": "gru", "embeddings": embeddings, "num_layers": 1}
        encoder = {**part, "hidden_size": recurrent.encoder // 2, "bidirectional": True, "dropout": job.dropout}
        decoder = {**part, "hidden_size": recurrent.decoder, "attention": "bahdanau", "input_feeding": True}
        decoder |= {"hidden_dropout": job.dropout, "init_hidden": "bridge"}
        return {"encoder": encoder, "decoder": decoder, "tied_embeddings": False, "tied_softmax": False}
    size = job.transformer()
    part = {
        "type": "transformer",
        "num_layers": size.layers,
        "num_heads": size.heads,
        "embeddings": {"embedding_dim": size.width, "scale": True, "dropout": job.dropout},
        "hidden_size": size.width,
        "ff_size": size.feedforward,
        "dropout": job.dropout,
        "layer_norm": "pre",
    }
    return {"encoder": dict(part), "decoder": dict(part), "tied_embeddings": True, "tied_softmax": True}

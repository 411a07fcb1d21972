"""OpenNMT-py 3: its model, loss, optimizer and trainer, fed with the plan's batches.

Shapes: B sentences, S source positions, T target positions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.speed.job import Job
from benchmarks.speed.plan import BOS, PAD, Plan
from benchmarks.speed.turns import Missing, Turns


def train(job: Job, plan: Plan, turns: Turns) -> None:
    """Its trainer reports each update to a report manager, and ours takes turns there."""
    try:
        import onmt
        from onmt.model_builder import build_model
        from onmt.trainer import build_trainer
        from onmt.utils.optimizers import Optimizer
    except ImportError as error:
        raise Missing(f"OpenNMT-py is not installed ({error})") from None
    torch.set_num_threads(job.threads)
    torch.manual_seed(job.seed)
    options, vocabs = parse(arguments(job)), vocabularies(plan.vocabulary)
    model = build_model(options, options, vocabs, None, -1)
    trainer = build_trainer(options, -1, model, vocabs, Optimizer.from_opt(model, options))

    class TakingTurns:
        """Stands where OpenNMT's report manager stands."""

        start_time = 0.0

        def report_training(self, *given: Any, **named: Any) -> Any:
            turns.done(float(given[4].xent()))
            return onmt.utils.Statistics()

    trainer.report_manager = TakingTurns()
    parameters = sum(parameter.numel() for parameter in model.parameters())
    turns.ready(version=f"OpenNMT-py {onmt.__version__}", parameters=parameters)
    trainer.train(batches(plan), train_steps=0, valid_steps=10**9)


def batches(plan: Plan) -> Iterator[tuple[dict[str, Any], int]]:
    """As its data loader gives them: source `(B, S, 1)`, target with the start symbol in front `(B, T + 1, 1)`."""
    for number in range(len(plan)):
        source, target = (torch.from_numpy(side) for side in plan.padded(number))
        target = torch.cat([torch.full_like(target[:, :1], BOS), target], 1)
        lengths = (source != PAD).sum(1)
        yield {"src": source[..., None], "srclen": lengths, "tgt": target[..., None]}, 0


def vocabularies(size: int) -> dict[str, Any]:
    """One vocabulary of made-up words for both sides; its special ids are Sightline's."""
    import pyonmttok
    from onmt.constants import DefaultTokens

    special = [DefaultTokens.PAD, DefaultTokens.UNK, DefaultTokens.BOS, DefaultTokens.EOS]
    words = [f"word{number}" for number in range(len(special), size)]
    vocabulary = pyonmttok.build_vocab_from_tokens(words, special_tokens=special)
    assert len(vocabulary) == size
    assert [vocabulary[name] for name in special] == list(range(len(special)))
    return {"src": vocabulary, "tgt": vocabulary, "data_task": "seq2seq", "decoder_start_token": DefaultTokens.BOS}


def arguments(job: Job) -> list[str]:
    """Its command line: what is not named here is as it comes."""
    if job.is_recurrent:
        recurrent = job.recurrent()
        width, warm = recurrent.decoder, job.warmup
        given = f"-encoder_type brnn -decoder_type rnn -rnn_type GRU -global_attention mlp -layers 1 \
            -word_vec_size {recurrent.embedding} -param_init 0.1"
    else:
        size = job.transformer()
        width, warm = size.width, job.warmup
        given = f"-encoder_type transformer -decoder_type transformer -layers {size.layers} -heads {size.heads} \
            -transformer_ff {size.feedforward} -word_vec_size {width} -position_encoding \
            -share_embeddings -share_decoder_embeddings -param_init 0 -param_init_glorot"
    # Its noam is c / sqrt(d) * min(1 / sqrt(step), step / warmup^1.5): with this c the highest rate is the job's.
    rate = job.peak * math.sqrt(width * warm)
    given += f" -hidden_size {width} -dropout {job.dropout} -attention_dropout 0 -optim adam -decay_method noam \
        -learning_rate {rate} -warmup_steps {warm} -adam_beta1 {job.betas[0]} -adam_beta2 {job.betas[1]} \
        -max_grad_norm {job.clip} -label_smoothing {job.smoothing} -normalization tokens -accum_count 1 \
        -share_vocab -data none -src_vocab none -save_model none"
    return given.split()


def parse(given: list[str]) -> Any:
    """Its options, checked as its own training command does; there are no files of data."""
    from onmt import opts
    from onmt.utils.parse import ArgumentParser

    parser = ArgumentParser()
    opts.train_opts(parser)
    options, _ = parser.parse_known_args(given)
    ArgumentParser.validate_train_opts(options)
    ArgumentParser.update_model_opts(options)
    ArgumentParser.validate_model_opts(options)
    options.data = {}
    return options

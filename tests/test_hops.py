"""Reading a story in hops (Sukhbaatar et al. 2015): by hand, and a chain of facts that takes as many hops as it has."""

import pytest
import torch
from torch import Tensor

from sightline.attention.capture import capture
from sightline.attention.core import attention_weights
from sightline.attention.scores import dot
from sightline.batch import Memory, Tokens, pad
from sightline.documents import cut
from sightline.hops import HopsEncoder, place_factors
from sightline.layers import Embedding
from sightline.text import EOS, PAD
from tests.test_documents import MARKER, documents, ids, model

V, D = 17, 6
STORY = [[5, 6, 7], [8, 9], [10], [11, 12]]


def encoder(hops: int, word_order: bool = False, max_age: int = 10) -> HopsEncoder:
    return HopsEncoder(V, D, hops, MARKER, word_order, max_age, 0.0).double().eval()


def embedding() -> Embedding:
    return Embedding(V, D, PAD, None, 0.0).double()


def slots_by_hand(made: HopsEncoder, words: Embedding, table: int) -> Tensor:
    """`(3, d)`: the story's sentences, each the sum of its tokens and its age's vector."""
    entries = words.weight if table == 0 else made.tables[table - 1]
    slots = [entries[[*sentence, MARKER]].sum(0) for sentence in STORY[:-1]]
    ages = [made.ages[table, min(2 - number, made.ages.size(1) - 1)] for number in range(3)]
    return torch.stack([slot + age for slot, age in zip(slots, ages, strict=True)])


@pytest.mark.parametrize("max_age", [10, 2])
@pytest.mark.parametrize("hops", [1, 2, 3])
def test_hops_by_hand(hops: int, max_age: int) -> None:
    made, words = encoder(hops, max_age=max_age), embedding()
    memory = made.read(words, pad([ids(STORY)], PAD))
    found = words.weight[[*STORY[-1], EOS]].sum(0)
    for hop in range(hops):
        keys, values = slots_by_hand(made, words, hop), slots_by_hand(made, words, hop + 1)
        found = found + (keys @ found).softmax(0) @ values
    assert memory.final is not None
    torch.testing.assert_close(memory.final.hidden[0, 0], found)
    torch.testing.assert_close(memory.states[0, :3], slots_by_hand(made, words, hops))
    torch.testing.assert_close(memory.states[0, 3], found)  # in the question's place
    assert memory.mask.all()


def test_one_hop_is_dot_attention_whose_keys_and_values_differ() -> None:
    made, words = encoder(1), embedding()
    with capture(made) as maps:
        memory = made.read(words, pad([ids(STORY)], PAD))
    question = words.weight[[*STORY[-1], EOS]].sum(0)
    keys, values = slots_by_hand(made, words, 0), slots_by_hand(made, words, 1)
    weights = attention_weights(question[None], keys, score=dot)
    torch.testing.assert_close(maps["hops.0"][0, 0, :, :3], weights)
    assert memory.final is not None
    torch.testing.assert_close(memory.final.hidden[0, 0] - question, (weights @ values)[0])
    assert not torch.allclose(keys, values)


def test_a_question_without_a_story_finds_nothing() -> None:
    made, words = encoder(3), embedding()
    memory = made.read(words, pad([ids([[5, 6]])], PAD))
    assert memory.final is not None
    torch.testing.assert_close(memory.final.hidden[0, 0], words.weight[[5, 6, EOS]].sum(0))
    assert memory.mask.tolist() == [[True]]
    whole = model("luong", {"encoder": {"kind": "hops", "width": None}})
    losses = whole.loss(documents([[5, 6]], STORY, targets=[3, 4]))
    losses["cross_entropy"][0].backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in whole.parameters())


def test_what_was_said_last_is_told_from_what_was_said_first() -> None:
    made, words = encoder(1), embedding()
    turned = [*STORY[:-1][::-1], STORY[-1]]
    memory = made.read(words, pad([ids(STORY), ids(turned)], PAD))
    assert memory.final is not None
    assert not torch.allclose(memory.final.hidden[0], memory.final.hidden[1])
    with torch.no_grad():
        made.ages.zero_()
    memory = made.read(words, pad([ids(STORY), ids(turned)], PAD))
    assert memory.final is not None
    torch.testing.assert_close(memory.final.hidden[0], memory.final.hidden[1])


def test_place_factors_by_hand() -> None:
    tokens = pad([ids([[5, 6, 7], [8]])], PAD)
    found = place_factors(cut(tokens.mask, tokens.ids == MARKER), 2)[0]
    for place, (j, length) in enumerate([(1, 4), (2, 4), (3, 4), (4, 4), (1, 2), (2, 2)]):
        expected = [(1 - j / length) - (k / 2) * (1 - 2 * j / length) for k in (1, 2)]
        assert found[place].tolist() == pytest.approx(expected)


def test_words_have_an_order_where_it_counts() -> None:
    """`a before b` and `b before a` are one bag, and two sentences."""
    first, second = ([[5, 6, 7], [8]], [[7, 6, 5], [8]])
    words = embedding()
    for ordered in (False, True):
        memory = encoder(1, ordered).read(words, pad([ids(first), ids(second)], PAD))
        assert torch.allclose(memory.states[0, 0], memory.states[1, 0]) != ordered


# Facts `a -> b` are two tokens, from a and to b; a question asks for a. The answer is where the last arrow leads.
ENTITIES = 4
FROM, TO, ASK = (lambda x: 5 + x), (lambda x: 5 + ENTITIES + x), (lambda x: 5 + 2 * ENTITIES + x)


def chained(hops: int, strength: float = 30.0) -> tuple[HopsEncoder, Embedding]:
    """Weights that follow arrows: each hop finds the arrow from where it stands, and steps to its end."""
    made = HopsEncoder(5 + 3 * ENTITIES, 3 * ENTITIES, hops, MARKER, False, 10, 0.0).double().eval()
    words = Embedding(5 + 3 * ENTITIES, 3 * ENTITIES, PAD, None, 0.0).double()
    first, between, last = (torch.eye(3 * ENTITIES).double()[part * ENTITIES :] * strength for part in range(3))
    with torch.no_grad():
        for table in (made.tables, made.ages, words.weight):
            table.zero_()
        for x in range(ENTITIES):
            words.weight[FROM(x)] = first[x]
            words.weight[ASK(x)] = first[x] - 2 * between[x]  # what it stands on is no end of an arrow to follow
            if hops == 2:
                made.tables[0, FROM(x)] = made.tables[0, TO(x)] = between[x]
            made.tables[-1, TO(x)] = last[x]
    return made, words


def answers(memory: Memory) -> list[int]:
    assert memory.final is not None
    return memory.final.hidden[:, 0, -ENTITIES:].argmax(-1).tolist()


def test_two_hops_follow_a_chain_of_two() -> None:
    stories = [
        [[FROM(0), TO(1)], [FROM(1), TO(2)], [FROM(3), TO(0)], [ASK(0)]],
        [[FROM(1), TO(3)], [FROM(3), TO(0)], [FROM(0), TO(1)], [ASK(0)]],
        [[FROM(2), TO(1)], [FROM(1), TO(3)], [ASK(2)]],
    ]
    source = pad([ids(story) for story in stories], PAD)
    made, words = chained(2)
    assert answers(made.read(words, source)) == [2, 3, 3]
    made, words = chained(1)
    assert answers(made.read(words, source)) == [1, 1, 1]  # the middle of the chain


def test_one_hop_cannot_follow_any() -> None:
    """Whatever its weights: the sum of two stories' findings cannot tell which first arrow goes with which second.

    What one hop adds is a mean over slots whose scores know the question and their own sentence alone. With the shares
    before the softmax's division, exchanging the first arrows of two stories leaves the sum of both as it was.
    """
    made, words = encoder(1), embedding()
    with torch.no_grad():
        made.ages.zero_()
    arrows = {name: [5 + number] for number, name in enumerate(["a->b", "a->d", "b->c", "d->e"])}
    ask = [12]

    def unnormalised(*names: str) -> Tensor:
        source = pad([ids([*(arrows[name] for name in names), ask])], PAD)
        with capture(made) as maps:
            memory = made.read(words, source)
        question = words.weight[[*ask, EOS]].sum(0)
        assert memory.final is not None
        keys = words.weight[[arrows[names[0]][0], MARKER]].sum(0)
        scale = torch.exp(keys @ question) / maps["hops.0"][0, 0, 0, 0]
        return (memory.final.hidden[0, 0] - question) * scale

    rest = ("b->c", "d->e")
    added = unnormalised("a->b", *rest) - unnormalised("a->d", *rest)
    torch.testing.assert_close(added, unnormalised("a->b") - unnormalised("a->d"))  # and `b->c` is not heard


def test_tokens_are_real_source_tokens() -> None:
    made = model("bahdanau", {"encoder": {"kind": "hops", "width": None}})
    batch = documents(STORY, [[5], [6]])
    memory = made.encode(batch)
    (source,) = batch.sources
    assert isinstance(source, Tokens)
    assert torch.equal(memory.tokens, source.mask)
    assert memory.spans is not None
    torch.testing.assert_close((memory.spans.members * memory.spans.shares[:, None]).sum(-1)[0], torch.ones(4))

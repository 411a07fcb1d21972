"""Alignments from weights, against values worked out by hand."""

import numpy as np
import pytest

from sightline.errors import SightlineError
from sightline.links import (
    Choice,
    Sentence,
    align,
    best_head,
    choices,
    links,
    match_and_mass,
    read_rows,
    select,
    symmetrise,
    to_pharaoh,
    word_weights,
)


def diagonal(n):
    return {(i, i) for i in range(n)}


def shifted(n):
    """Weights (n + 1, n + 1) of a decoder that looks at word t one step after it has written it."""
    weights = np.zeros((n + 1, n + 1))
    weights[0, n] = 1.0
    weights[1:, :n] = np.eye(n)
    return weights


def error(predicted, gold):
    """A stand-in for the alignment error rate with sure links only."""
    hits = sum(len(one & other) for one, other in zip(predicted, gold, strict=True))
    return 1 - 2 * hits / sum(len(one) + len(other) for one, other in zip(predicted, gold, strict=True))


def test_predicts_keeps_the_row_of_the_token_and_drops_both_ends():
    weights = np.arange(12.0).reshape(3, 4)
    assert read_rows(weights, "predicts").tolist() == [[0, 1, 2], [4, 5, 6]]
    assert read_rows(weights, "consumes").tolist() == [[4, 5, 6], [8, 9, 10]]


def test_heads_travel_along():
    assert read_rows(np.zeros((8, 5, 6)), "consumes").shape == (8, 4, 5)


def test_unknown_reading_and_missing_rows():
    with pytest.raises(SightlineError, match="did you mean 'predicts'"):
        read_rows(np.zeros((2, 2)), "predict")
    with pytest.raises(ValueError, match="no end-of-sentence"):
        read_rows(np.zeros((0, 2)))


def test_a_diagonal_shifted_by_one_is_perfect_when_read_where_it_is_consumed():
    weights = shifted(5)
    assert links(read_rows(weights, "consumes")) == diagonal(5)
    assert links(read_rows(weights, "predicts")) == {(i, i + 1) for i in range(4)}


def test_an_empty_translation_has_no_links():
    rows = read_rows(np.full((1, 4), 0.25))
    assert rows.shape == (0, 3)
    assert links(rows) == set()
    assert word_weights(rows, [], [0, 0, 1]).shape == (0, 2)


def test_words_sum_source_pieces_and_average_target_pieces():
    weights = np.array([[0.1, 0.2, 0.7], [0.5, 0.3, 0.2], [0.0, 0.4, 0.6]])
    merged = word_weights(weights, target_words=[0, 0, 1], source_words=[0, 1, 1])
    np.testing.assert_allclose(merged, [[0.3, 0.7], [0.0, 1.0]])


def test_special_tokens_are_left_out_and_may_follow_the_matrix():
    weights = np.array([[0.9, 0.1], [0.2, 0.8]])
    merged = word_weights(weights, target_words=[0, -1, -1], source_words=[-1, 0, -1])
    np.testing.assert_allclose(merged, [[0.1]])
    assert links(weights, [0, -1, -1], [-1, 0, -1]) == {(0, 0)}


def test_a_word_without_pieces_gets_zeros():
    merged = word_weights(np.ones((1, 1)), [1], [0], shape=(3, 2))
    np.testing.assert_allclose(merged, [[0, 0], [1, 0], [0, 0]])


def test_index_lists_must_cover_the_matrix():
    with pytest.raises(ValueError, match="1 token-to-word indices for 2"):
        word_weights(np.ones((2, 1)), [0], [0])
    with pytest.raises(ValueError, match="2 token-to-word indices for 1"):
        links(np.ones((1, 1)), [0, 1], [0])


def test_words_are_linked_if_any_of_their_pieces_are():
    weights = np.array([[0.6, 0.4, 0.0], [0.1, 0.2, 0.7], [0.3, 0.3, 0.4]])
    # Word 0 of the target has two pieces, which look at source words 0 and 1.
    assert links(weights, [0, 0, 1], [0, 0, 1]) == {(0, 0), (1, 0), (1, 1)}


def test_ties_go_to_the_first_and_empty_rows_to_none():
    assert links(np.array([[0.5, 0.5], [0.0, 0.0], [np.nan, 0.1]])) == {(0, 0), (1, 2)}


def test_threshold_links_all_that_weigh_enough():
    weights = np.array([[0.5, 0.4, 0.1], [0.3, 0.3, 0.4]])
    assert links(weights, threshold=0.4) == {(0, 0), (1, 0), (2, 1)}
    assert links(np.array([[0.0, 1.0]]), threshold=0.0) == {(1, 0)}


def test_pharaoh_is_sorted_by_number_not_by_text():
    assert to_pharaoh({(10, 2), (2, 10), (2, 9), (0, 0)}) == "0-0 2-9 2-10 10-2"
    assert to_pharaoh(set()) == ""


def test_match_and_mass_by_hand():
    weights = np.array([[0.7, 0.2, 0.1], [0.3, 0.4, 0.3], [0.1, 0.1, 0.8]])
    reference = {(0, 0), (1, 1), (2, 1), (0, 2)}
    # Word 0: the top word is 0, mass .7. Word 1: the top two are 1 and 0, not 1 and 2; mass .7. Word 2: no, .1.
    match, mass, words = match_and_mass([weights], [reference])
    assert (match, words) == (pytest.approx(1 / 3), 3)
    assert mass == pytest.approx(0.5)
    assert match_and_mass([weights], [set()]) == (0.0, 0.0, 0)


def test_intersection_and_union():
    forward, backward = {(0, 0), (1, 1), (2, 1)}, {(0, 0), (1, 1), (1, 2)}
    assert symmetrise(forward, backward, "intersection") == {(0, 0), (1, 1)}
    assert symmetrise(forward, backward, "union") == {(0, 0), (1, 1), (2, 1), (1, 2)}


def test_grow_diag_takes_neighbours_with_a_free_word():
    forward, backward = {(0, 0), (1, 1), (2, 1)}, {(0, 0), (1, 1), (1, 2)}
    assert symmetrise(forward, backward, "grow-diag") == {(0, 0), (1, 1), (2, 1), (1, 2)}


def test_grow_diag_leaves_far_links_and_links_between_taken_words():
    # (5, 5) touches nothing; (0, 1) touches two links but both its words are taken.
    forward, backward = {(0, 0), (1, 1), (0, 1)}, {(0, 0), (1, 1), (5, 5)}
    assert symmetrise(forward, backward, "grow-diag") == {(0, 0), (1, 1)}


def test_grow_diag_goes_on_from_what_it_took():
    forward, backward = {(0, 0), (1, 1), (2, 2)}, {(0, 0)}
    assert symmetrise(forward, backward) == diagonal(3)


def test_unknown_symmetry():
    with pytest.raises(SightlineError, match="did you mean 'union'"):
        symmetrise(set(), set(), "unions")


def test_select_averages_layers_and_heads():
    layers = [np.stack([np.full((2, 2), 0.0), np.full((2, 2), 1.0)]), np.full((1, 2, 2), 0.8)]
    assert select(layers, 0, 1)[0, 0] == 1.0
    assert select(layers, 0)[0, 0] == 0.5
    assert select(layers)[0, 0] == pytest.approx(0.65)


@pytest.mark.parametrize(
    ("layer", "head", "message"),
    [(3, None, "layers 0 to 0"), (0, 9, "heads 0 to 1"), (None, 1, "needs alignment.layer"), (-1, None, "layers 0")],
)
def test_select_says_what_there_is(layer, head, message):
    with pytest.raises(SightlineError, match=message):
        select([np.zeros((2, 2, 2))], layer, head)


def test_a_model_without_weights_says_so():
    with pytest.raises(SightlineError, match="no attention weights"):
        select([])


def test_what_was_copied_is_in_no_average_and_tells_where_nothing_else_does():
    looked, copied = np.eye(3)[None], np.eye(3)[None, [1, 0, 2]]
    both = Sentence([looked], range(2), range(2), copied=copied)
    assert align(both, Choice()) == {(0, 0), (1, 1)}
    assert [one is other for one, other in zip(both.maps, [looked, copied], strict=True)] == [True, True]
    alone = Sentence([], range(2), range(2), copied=copied)
    assert align(alone, Choice()) == {(0, 1), (1, 0)}
    gold = [{(0, 1), (1, 0)}]
    assert best_head([both], lambda predicted: error(predicted, gold))[1] > 0
    assert best_head([alone], lambda predicted: error(predicted, gold)) == (Choice(), 0)
    with pytest.raises(SightlineError, match="no attention weights"):
        align(Sentence([], range(2), range(2)), Choice())


def test_best_head_finds_the_hidden_head_and_its_reading():
    generator = np.random.default_rng(0)
    sentences = []
    for n in (4, 6, 7):
        # The other heads all look at one wrong place, so that no average hides the good one.
        elsewhere = np.eye(n + 1)[generator.permutation(n + 1)]
        layers = [np.stack([elsewhere] * 3) for _ in range(2)]
        layers[1][2] = shifted(n)
        sentences.append(Sentence(layers, [*range(n), -1], [*range(n), -1]))
    gold = [diagonal(n) for n in (4, 6, 7)]
    choice, value = best_head(sentences, lambda predicted: error(predicted, gold))
    assert choice == Choice(1, 2, "consumes")
    assert value == 0
    assert align(sentences[0], choice) == gold[0]


def test_best_head_prefers_the_simplest_of_equals():
    sentence = Sentence([shifted(3)[None]] * 2, range(3), range(3))
    assert best_head([sentence], lambda predicted: error(predicted, [diagonal(3)]))[0] == Choice(None, None, "consumes")
    assert len(list(choices(sentence.layers))) == 6
    with pytest.raises(SightlineError, match="at least one sentence"):
        best_head([], lambda predicted: 0.0)

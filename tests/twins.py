"""torch's own modules as twins of ours: the same weights, so the results must be the same."""

from torch import nn

from sightline.attention.multihead import MultiHeadAttention
from sightline.decoders import TransformerDecoderLayer
from sightline.decoders.cells import Cell
from sightline.encoders import TransformerEncoderLayer


def copy_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    """The packed projections have one order in both: queries, keys, values."""
    theirs.in_proj_weight.data.copy_(ours.weight.data)
    theirs.in_proj_bias.data.copy_(ours.bias.data)
    theirs.out_proj.load_state_dict(ours.output.state_dict())


def copy_encoder_layer(ours: TransformerEncoderLayer, theirs: nn.TransformerEncoderLayer) -> None:
    copy_attention(ours.self_attention, theirs.self_attn)
    theirs.linear1.load_state_dict(ours.feedforward.inner.state_dict())
    theirs.linear2.load_state_dict(ours.feedforward.outer.state_dict())
    theirs.norm1.load_state_dict(ours.around_attention.norm.state_dict())
    theirs.norm2.load_state_dict(ours.around_feedforward.norm.state_dict())


def copy_decoder_layer(ours: TransformerDecoderLayer, theirs: nn.TransformerDecoderLayer) -> None:
    copy_attention(ours.self_attention, theirs.self_attn)
    copy_attention(ours.cross, theirs.multihead_attn)
    theirs.linear1.load_state_dict(ours.feedforward.inner.state_dict())
    theirs.linear2.load_state_dict(ours.feedforward.outer.state_dict())
    theirs.norm1.load_state_dict(ours.around_attention.norm.state_dict())
    theirs.norm2.load_state_dict(ours.around_cross.norm.state_dict())
    theirs.norm3.load_state_dict(ours.around_feedforward.norm.state_dict())


def copy_cell(ours: Cell, theirs: nn.RNNBase | nn.RNNCellBase, suffix: str = "") -> None:
    """Into layer `suffix` ("_l0", …) of a network, or into a single cell: the token's columns come first."""
    weight = ours.weight_token.data
    entering = getattr(theirs, f"weight_ih{suffix}").data
    entering[:, : weight.size(1)] = weight
    if ours.weight_extra is not None:
        entering[:, weight.size(1) :] = ours.weight_extra.data
    getattr(theirs, f"weight_hh{suffix}").data.copy_(ours.weight_hidden.data)
    getattr(theirs, f"bias_ih{suffix}").data.copy_(ours.bias_input.data)
    getattr(theirs, f"bias_hh{suffix}").data.copy_(ours.bias_hidden.data)


def shake(module: nn.Module) -> None:
    """Moves every parameter off its initial value, so that no bias of zero or gain of one hides a mistake."""
    for parameter in module.parameters():
        parameter.data.add_(0.1 * parameter.data.new_empty(parameter.shape).normal_())

"""The templates for CPUs."""

from __future__ import annotations

from tilewright.topi.cpu import candidates as cpu
from tilewright.topi.cpu.depthwise_blocks import BlockTile, schedule_blocks
from tilewright.topi.cpu.depthwise_channels import ChannelTile, schedule_channels
from tilewright.topi.cpu.depthwise_fast_fir import FirTile, declare_fir, schedule_fir
from tilewright.topi.cpu.depthwise_lines import LineTile, schedule_lines
from tilewright.topi.cpu.depthwise_pairs import PairTile, declare_pairs, schedule_pairs
from tilewright.topi.cpu.depthwise_tiles import (
    AmxTile,
    amx_tiles,
    declare_amx,
    schedule_amx,
    suits_amx,
)
from tilewright.topi.cpu.depthwise_wgrad import (
    GradTile,
    schedule_wgrad_channels,
    schedule_wgrad_lines,
)
from tilewright.topi.cpu.depthwise_words import WordTile, schedule_words, suits_words, word_tiles
from tilewright.topi.template import Template

#: Any type of sums.
_ANY = ("",)

#: In the order in which they are tried.
CPU = (
    Template("cpu.pairs", PairTile, schedule_pairs, ("forward", "dgrad"), True, False,
             cpu.pair_tiles, where=cpu.suits_pairs, features=("avx512f", "avx512bf16"),
             declares=declare_pairs),
    Template("cpu.tiles", AmxTile, schedule_amx, ("forward", "dgrad"), False, False,
             amx_tiles, where=suits_amx, features=("avx512f", "amx-tile", "amx-bf16"),
             declares=declare_amx),
    Template("cpu.words", WordTile, schedule_words, ("forward",), True, False, word_tiles,
             where=suits_words, features=("avx512f", "avx512vnni"), form="unsigned dots",
             types=("int",)),
    Template("cpu.fir_lines", FirTile, schedule_fir, ("forward", "dgrad"), False, False,
             cpu.fir_tiles, where=cpu.suits_fir, declares=declare_fir),
    Template("cpu.fir_channels", FirTile, schedule_fir, ("forward", "dgrad"), True, False,
             cpu.fir_tiles, where=cpu.suits_fir, declares=declare_fir),
    Template("cpu.lines", LineTile, schedule_lines, ("forward", "dgrad"), False, False,
             cpu.line_tiles, form="wide", types=_ANY),
    Template("cpu.blocks", BlockTile, schedule_blocks, ("forward", "dgrad"), True, False,
             cpu.block_tiles, where=cpu.suits_blocks, form="wide", types=_ANY),
    Template("cpu.channels", ChannelTile, schedule_channels, ("forward", "dgrad"), True, False,
             cpu.channel_tiles, types=_ANY),
    Template("cpu.wgrad_lines", GradTile, schedule_wgrad_lines, ("wgrad",), False, False,
             cpu.grad_tiles),
    Template("cpu.wgrad_channels", GradTile, schedule_wgrad_channels, ("wgrad",), True, False,
             cpu.grad_tiles),
)  # fmt: skip

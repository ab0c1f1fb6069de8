"""A preset that is run within seconds."""

PRESET = """\
datasets:
  digits-if100: {source: digits, imbalance: 100}
methods:
  ce: {system: ce}
  pal: {system: pal}
seeds: [0, 1]
training: {epochs: 1, warmup_epochs: 0}
"""

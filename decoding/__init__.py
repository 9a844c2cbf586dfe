"""The mathematics that device and cloud share, in numpy alone and in float64.

Modules: `intervals` (InterFuse and U), `rng` (the counter generator), `sampling` (logits to probabilities to tokens),
`sparse` (the draft distribution on the wire), `acceptance` (the rules that judge a drafted token), `published` (their
parameters in the papers), `strategies`, `coupling` and `tree` (how the target draws by itself), `statistics` (what a
policy may call uncertain) and `thresholds` (tau, calibrated and tracked).
"""

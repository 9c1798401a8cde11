"""Sessions: work in stages that keeps checkpoints, can be paused and resumed, and always ends."""

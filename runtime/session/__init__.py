"""Sessions: inputs, states, batches and outputs of a run."""

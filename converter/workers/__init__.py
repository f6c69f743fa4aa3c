"""Work over samples and models: split into shards, run by workers, and merged exactly."""

"""Generation of text with a decoder language model and the files that are published beside it."""

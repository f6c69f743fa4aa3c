"""Decoder language models of transformers as exporters and builders write them, and the product's results with each."""

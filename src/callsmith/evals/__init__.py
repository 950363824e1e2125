"""Proof: whether a server calls tools rightly, and how well a model does."""

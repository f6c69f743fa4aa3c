"""Signatures of models in the format of OpenSSF Model Signing (mode "key"), and in-toto statements.

``model_files`` lists and hashes what is signed, ``statement`` describes it in the in-toto format, ``bundle`` wraps it
into a Sigstore bundle, and ``keys`` signs and verifies bytes with an elliptic-curve key.
"""
